"""Pure core: the consistency check of the demo: compares the platform with pandas, user by user."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from starling_common.time.instants import format_instant
from starling_demo.dataset import Purchase
from starling_demo.expected import Changes, expected_changes, expected_members, expected_trait, trait_reached
from starling_demo.observed import Feed
from starling_demo.scenario import COMPUTED_TRAIT, VIP_FROM_DOLLARS

ENTRY_BY_SPARK: Final = (
    "the instant of an entry is that at which the trait arrives from Spark; it is compared with the earliest possible one"
)


class Scope(NamedTuple):
    """One line of the comparison: what was compared, and the reason if an instant was not compared exactly."""

    name: str
    compared: str
    exclusion: str | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of the check. Shape: `differences` has one line for each difference and is empty if there is none."""

    scopes: Sequence[Scope]
    differences: Sequence[str]


def compare(
    purchases: Sequence[Purchase], feed: Feed, members: Mapping[str, Collection[str]], trait: Mapping[str, float]
) -> Comparison:
    """Compare the results of the platform with those of pandas.

    Compared are the value of the computed trait of every user; the members of every segment, from the API and from the last
    feed record of each user; every entry and exit with its instant; and the sequences of the feed. Spark decides when a
    trait changes, so an entry into `vip` has a lower bound only. The changes of `vip-lapsing` follow from those entries.
    """
    changes = expected_changes(purchases)
    values = expected_trait(purchases)
    key = str(COMPUTED_TRAIT["key"])
    found = [*feed.errors, *_value_differences(key, values, trait)]
    scopes = [Scope(f"computed trait {key}", f"{len(values):,} values")]
    for segment, wanted in expected_members(purchases, changes).items():
        seen = feed.changes.get(segment, {})
        by_feed = {user for user, of_user in seen.items() if of_user[-1][0] == "ENTERED"}
        found += _set_differences(f"{segment}: members by the API", wanted, members.get(segment, set()))
        found += _set_differences(f"{segment}: members by the feed", wanted, by_feed)
        exclusion = None
        if segment == "vip":
            found += _entry_differences(segment, trait_reached(purchases, VIP_FROM_DOLLARS), seen)
            exclusion = ENTRY_BY_SPARK
        elif segment == "vip-lapsing":
            late, ambiguous = _late_differences(segment, feed.changes.get("vip", {}), changes["lapsing"], seen)
            found += late
            if ambiguous:
                exclusion = f"{ambiguous:,} users entered vip at the instant of a change of lapsing; both orders are accepted"
        else:
            found += _change_differences(segment, changes[segment], seen)
        count = sum(map(len, seen.values()))
        scopes.append(Scope(segment, f"{len(wanted):,} members, {count:,} entries and exits", exclusion))
    return Comparison(scopes, found)


def _value_differences(key: str, wanted: Mapping[str, float], found: Mapping[str, float]) -> list[str]:
    users = sorted(user for user in wanted.keys() | found.keys() if wanted.get(user) != found.get(user))
    return [f"computed trait {key}: {user}: expected {wanted.get(user)}, found {found.get(user)}" for user in users]


def _set_differences(what: str, wanted: Collection[str], found: Collection[str]) -> list[str]:
    missing = [f"{what}: {user} is missing" for user in sorted(set(wanted) - set(found))]
    return missing + [f"{what}: {user} is not expected" for user in sorted(set(found) - set(wanted))]


def _change_differences(key: str, wanted: Changes, found: Changes) -> list[str]:
    wrong = sorted(user for user in wanted.keys() | found.keys() if wanted.get(user, []) != found.get(user, []))
    return [
        f"{key}: {user}: expected {_changes_text(wanted.get(user, []))}, found {_changes_text(found.get(user, []))}"
        for user in wrong
    ]


def _entry_differences(key: str, earliest: Mapping[str, int], found: Changes) -> list[str]:
    """Return the users that changed more than once, or that entered before the purchase that allows it."""
    wrong = []
    for user, changes in sorted(found.items()):
        if len(changes) != 1:
            wrong.append(f"{key}: {user} changed {len(changes)} times, expected once")
        if user in earliest and changes[0][1] < earliest[user]:
            entered, possible = format_instant(changes[0][1]), format_instant(earliest[user])
            wrong.append(f"{key}: {user} entered {entered}, expected {possible} at the earliest")
    return wrong


def _late_differences(key: str, entries: Changes, lapsing: Changes, found: Changes) -> tuple[list[str], int]:
    """Compare the changes of "in vip and in lapsing" with those that follow from the entries into vip.

    Returns: the differences, and the number of users with two possible results: an entry at the instant of a change of
    lapsing is evaluated before or after that change.
    """
    wrong, ambiguous = list[str](), 0
    for user in sorted(entries.keys() | found.keys()):
        entered = entries[user][0][1] if user in entries else None
        of_user = lapsing.get(user, [])
        possible = [] if entered is None else _both_orders(entered, of_user)
        ambiguous += len(possible) > 1
        if found.get(user, []) not in (possible or [[]]):
            texts = " or ".join(map(_changes_text, possible or [[]]))
            wrong.append(f"{key}: {user}: expected {texts}, found {_changes_text(found.get(user, []))}")
    return wrong, ambiguous


def _both_orders(entered: int, lapsing: Sequence[tuple[str, int]]) -> list[list[tuple[str, int]]]:
    """Return the possible changes of a user that entered vip at `entered`: one, or two if lapsing changed at that instant."""
    possible = list[list[tuple[str, int]]]()
    for before in ([one for one in lapsing if one[1] < entered], [one for one in lapsing if one[1] <= entered]):
        after = lapsing[len(before) :]
        is_in = bool(before) and before[-1][0] == "ENTERED"
        changes = [("ENTERED", entered), *after] if is_in else list(after)
        if changes not in possible:
            possible.append(changes)
    return possible


def _changes_text(changes: Sequence[tuple[str, int]]) -> str:
    return ", ".join(f"{status} {format_instant(at)}" for status, at in changes) or "nothing"
