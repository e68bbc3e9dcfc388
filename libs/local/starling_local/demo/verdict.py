"""Pure core: the platform's answers held against pandas', user by user."""

from collections.abc import Mapping, Sequence

from starling_common.instants import format_instant
from starling_local.demo.dataset import Purchase
from starling_local.demo.expected import Changes, expected_changes, expected_members
from starling_local.demo.observed import Feed
from starling_local.demo.scenario import SETTLED_BY_SPARK


def differences(purchases: Sequence[Purchase], feed: Feed, members: Mapping[str, set[str]]) -> list[str]:
    """One line a difference; empty when everything is equal.

    Compared are: the members of every segment at the end, by the API and by the feed's last record of each user; every
    entry and exit with its instant (for segments that only events decide); sequences without a gap or a repeat.
    """
    found = list(feed.faults)
    expected = expected_changes(purchases)
    for key, wanted in sorted(expected_members(purchases, expected).items()):
        told = {user for user, changes in feed.changes.get(key, {}).items() if changes[-1][0] == "ENTERED"}
        found += _set_differences(f"{key}: members by the API", wanted, members.get(key, set()))
        found += _set_differences(f"{key}: members by the feed", wanted, told)
        if key not in SETTLED_BY_SPARK:
            found += _change_differences(key, expected[key], feed.changes.get(key, {}))
    vip = feed.changes.get("vip", {})
    found += [f"vip: {user} changed {len(changes)} times, once was due" for user, changes in vip.items() if len(changes) != 1]
    return found


def _set_differences(what: str, wanted: set[str], found: set[str]) -> list[str]:
    missing = [f"{what}: {user} is missing" for user in sorted(wanted - found)]
    return missing + [f"{what}: {user} is not due" for user in sorted(found - wanted)]


def _change_differences(key: str, wanted: Changes, found: Changes) -> list[str]:
    wrong = sorted(user for user in wanted.keys() | found.keys() if wanted.get(user, []) != found.get(user, []))
    return [f"{key}: {user}: due {_told(wanted.get(user, []))}, found {_told(found.get(user, []))}" for user in wrong]


def _told(changes: Sequence[tuple[str, int]]) -> str:
    return ", ".join(f"{status} {format_instant(at)}" for status, at in changes) or "nothing"
