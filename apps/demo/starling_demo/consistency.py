"""Pure core: the consistency check of the demo: compares the platform with pandas, user by user."""

from collections.abc import Mapping, Sequence

from starling_common.instants import format_instant
from starling_demo.dataset import Purchase
from starling_demo.expected import Changes, expected_changes, expected_members
from starling_demo.observed import Feed
from starling_demo.scenario import COMPUTED_BY_SPARK


def differences(purchases: Sequence[Purchase], feed: Feed, members: Mapping[str, set[str]]) -> list[str]:
    """Return one line for each difference; an empty list means equality.

    The check compares the members of every segment at the end, from the API and from the last feed record of each user;
    every entry and exit with its instant, for segments without computed traits; and the sequences of the feed.
    """
    found = list(feed.errors)
    expected = expected_changes(purchases)
    for key, wanted in sorted(expected_members(purchases, expected).items()):
        by_feed = {user for user, changes in feed.changes.get(key, {}).items() if changes[-1][0] == "ENTERED"}
        found += _set_differences(f"{key}: members by the API", wanted, members.get(key, set()))
        found += _set_differences(f"{key}: members by the feed", wanted, by_feed)
        if key not in COMPUTED_BY_SPARK:
            found += _change_differences(key, expected[key], feed.changes.get(key, {}))
    vip = feed.changes.get("vip", {})
    found += [f"vip: {user} changed {len(changes)} times, expected once" for user, changes in vip.items() if len(changes) != 1]
    return found


def _set_differences(what: str, wanted: set[str], found: set[str]) -> list[str]:
    missing = [f"{what}: {user} is missing" for user in sorted(wanted - found)]
    return missing + [f"{what}: {user} is not expected" for user in sorted(found - wanted)]


def _change_differences(key: str, wanted: Changes, found: Changes) -> list[str]:
    wrong = sorted(user for user in wanted.keys() | found.keys() if wanted.get(user, []) != found.get(user, []))
    return [
        f"{key}: {user}: expected {_changes_text(wanted.get(user, []))}, found {_changes_text(found.get(user, []))}"
        for user in wrong
    ]


def _changes_text(changes: Sequence[tuple[str, int]]) -> str:
    return ", ".join(f"{status} {format_instant(at)}" for status, at in changes) or "nothing"
