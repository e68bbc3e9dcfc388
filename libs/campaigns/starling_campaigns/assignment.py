"""Pure core: which variant of a campaign a user gets, and whether the user is held out. It never changes for a user."""

from typing import NamedTuple

from starling_campaigns.definitions.campaign import Campaign
from starling_policy.shares import holdout_position, variant_of


class Assignment(NamedTuple):
    """The assignment of a user. Held-out users have a variant too, so that both arms of it can be compared."""

    variant: str
    held_out: bool


def assignment_of(campaign: Campaign, user_id: str) -> Assignment:
    """Return the user's variant and holdout: the hash of bucket conditions with the salts `<key>:variant` and `<key>:holdout`."""
    rules = campaign.rules
    variant = variant_of(campaign.key, rules.variants, user_id)
    assert variant is not None  # noqa: S101 - the weights of an accepted campaign sum to 100
    return Assignment(variant, holdout_position(campaign.key, user_id) < rules.holdout_share)
