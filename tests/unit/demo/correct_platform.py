"""The responses of a correct platform, as the demo observes them."""

import copy

from starling_demo.consistency import compare
from starling_demo.dataset import Purchase
from starling_demo.expected import expected_changes, expected_members, expected_trait, trait_reached
from starling_demo.observed import Feed


class Platform:
    """The responses of a correct platform; a test plants errors in them."""

    def __init__(self, purchases: list[Purchase]) -> None:
        self.purchases, self.feed, changes = purchases, Feed(), expected_changes(purchases)
        self.members, self.trait = expected_members(purchases, changes), expected_trait(purchases)
        for key, users in changes.items():
            self.feed.changes[key].update(copy.deepcopy(users))
        for user, at in trait_reached(purchases, 500).items():
            self.feed.changes["vip"][user] = [("ENTERED", at)]
            late = [change for change in changes["lapsing"].get(user, []) if change[1] > at]
            self.feed.changes["vip-lapsing"].update({user: late} if late else {})

    def differences(self) -> list[str]:
        return list(compare(self.purchases, self.feed, self.members, self.trait).differences)
