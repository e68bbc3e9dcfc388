"""Pure core: who must be in which segment, and when they entered and left, by plain pandas on the same file.

Shares nothing with the platform: whole history in memory, and truth asked at every instant at which it can change.
"""

import math
from collections.abc import Callable, Sequence

import pandas as pd

from starling_common.instants import parse_instant
from starling_local.demo.dataset import Purchase
from starling_local.demo.scenario import COMPUTED_TRAIT, END, product_id

DAY_MS = 86_400_000
END_MS = parse_instant(END)

Change = tuple[str, int]
"""ENTERED or EXITED, and when, epoch milliseconds."""

Changes = dict[str, list[Change]]
"""User id -> changes in order."""

Truth = Callable[[list[int], list[float], int], bool]
"""Times of the user's purchases up to the instant, their revenues, the instant."""


def expected_changes(purchases: Sequence[Purchase]) -> dict[str, Changes]:
    """Segment key -> user -> every entry and exit up to the end of the demo's clock, of segments that only events decide."""
    frame = _frame(purchases)
    boxes = frame[frame["product"] == "cd-box"]
    return {
        "new-buyers": _changes(frame, [30], lambda times, _, now: now - 30 * DAY_MS < times[0]),
        "repeat-buyers": _changes(frame, [90], lambda times, _, now: len(_inside(times, now, 90)) >= 2),
        "big-spenders": _changes(frame, [180], _spent(200, 180)),
        "lapsing": _changes(frame, [180], lambda times, _, now: not _inside(times, now, 180)),
        "box-set-fans": _changes(boxes, [365], lambda times, _, now: len(_inside(times, now, 365)) >= 2),
    }


def expected_members(purchases: Sequence[Purchase]) -> dict[str, set[str]]:
    """Segment key -> who is in it at the end, for every segment of the demo."""
    members = {key: _in_at_the_end(changes) for key, changes in expected_changes(purchases).items()}
    total = _frame(purchases).groupby("user")["revenue"].agg(math.fsum)
    vip = set(total[total >= 500].index)
    return members | {"vip": vip, "vip-lapsing": vip & members["lapsing"]}


def expected_trait(purchases: Sequence[Purchase]) -> dict[str, float]:
    """User -> the computed trait's value at the end."""
    totals = _frame(purchases).groupby("user")["revenue"].agg(math.fsum)
    totals.name = str(COMPUTED_TRAIT["key"])
    return {str(user): float(total) for user, total in totals.items()}


def _frame(purchases: Sequence[Purchase]) -> pd.DataFrame:
    rows = [(p.user_id, p.at_ms, p.revenue, product_id(p)) for p in purchases]
    return pd.DataFrame(rows, columns=["user", "at", "revenue", "product"])


def _inside(times: list[int], now: int, days: int) -> list[int]:
    return [t for t in times if now - days * DAY_MS < t <= now]


def _spent(dollars: float, days: int) -> Truth:
    def holds(times: list[int], revenues: list[float], now: int) -> bool:
        # Exactly rounded, as money must be: a running sum would drift off the threshold.
        return math.fsum(r for t, r in zip(times, revenues, strict=True) if now - days * DAY_MS < t <= now) >= dollars

    return holds


def _changes(frame: pd.DataFrame, windows: list[int], truth: Truth) -> Changes:
    changes: Changes = {}
    for user, rows in frame.sort_values("at", kind="stable").groupby("user"):
        found = _of_one(rows["at"].tolist(), rows["revenue"].tolist(), windows, truth)
        if found:
            changes[str(user)] = found
    return changes


def _of_one(times: list[int], revenues: list[float], windows: list[int], truth: Truth) -> list[Change]:
    member, found = False, list[Change]()
    # One evaluation an event: purchases of the same instant are folded one after the other, so they appear one by one.
    steps = [(at, count) for count, at in enumerate(times, 1)]
    expiries = {at + days * DAY_MS for at in times for days in windows}
    steps += [(at, sum(t <= at for t in times)) for at in expiries if at <= END_MS and at not in set(times)]
    for at, count in sorted(steps):
        now_in = truth(times[:count], revenues[:count], at)
        if now_in != member:
            found.append(("ENTERED" if now_in else "EXITED", at))
            member = now_in
    return found


def _in_at_the_end(changes: Changes) -> set[str]:
    return {user for user, of_user in changes.items() if of_user[-1][0] == "ENTERED"}
