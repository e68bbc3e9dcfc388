"""The audience report by plain pandas, with nothing of the job's: a table of who is in at the end of each day."""

from collections.abc import Sequence
from functools import cache

import numpy as np
import numpy.typing as npt
import pandas as pd

from starling_demo.expected import Changes

DAY_MS = 86_400_000


def pandas_days(changes: dict[str, Changes], end_ms: int) -> dict[tuple[str, str], tuple[int, int, int]]:
    """(segment, day) -> (size, entries, exits)."""
    found = {}
    for key, of_users in changes.items():
        frame = _frame(of_users)
        inside, _, first = _inside(of_users, end_ms)
        counts = frame.groupby(["day", "status"]).size()
        for number in range(inside.shape[1]):
            day = first + number
            entries, exits = (int(counts.get((day, status), 0)) for status in ("ENTERED", "EXITED"))
            found[key, _text(day)] = (int(inside[:, number].sum()), entries, exits)
    return found


def pandas_retention(
    changes: dict[str, Changes], end_ms: int, days_later: Sequence[int]
) -> dict[tuple[str, str, int], tuple[int, int]]:
    """(segment, day, days later) -> (entered, still in)."""
    found = {}
    for key, of_users in changes.items():
        frame = _frame(of_users)
        inside, users, first = _inside(of_users, end_ms)
        over = (end_ms + 1) // DAY_MS - 1
        entered = frame[frame["status"] == "ENTERED"].groupby("day")["user"].unique()
        for day, people in entered.items():
            rows = [users[user] for user in people]
            for later in days_later:
                then = int(str(day)) + later
                if then <= over:
                    found[key, _text(int(str(day))), later] = (len(rows), int(inside[rows, then - first].sum()))
    return found


def pandas_overlap(changes: dict[str, Changes]) -> dict[tuple[str, str], int]:
    """(segment, segment) -> users in both at the end, without pairs that share no user."""
    last = {key: {user for user, of_user in of_users.items() if of_user[-1][0] == "ENTERED"} for key, of_users in changes.items()}
    pairs = {(one, other): len(last[one] & last[other]) for one in last for other in last}
    return {pair: users for pair, users in pairs.items() if users}


def _frame(of_users: Changes) -> pd.DataFrame:
    rows = [(user, status, at // DAY_MS) for user, of_user in of_users.items() for status, at in of_user]
    return pd.DataFrame(rows, columns=["user", "status", "day"])


def _inside(of_users: Changes, end_ms: int) -> tuple[npt.NDArray[np.bool_], dict[str, int], int]:
    """Users by days: whether the user is in when the day ends; the users' rows; the first day."""
    first = min(at for of_user in of_users.values() for _, at in of_user) // DAY_MS
    users = {user: row for row, user in enumerate(of_users)}
    inside = np.zeros((len(users), end_ms // DAY_MS - first + 1), dtype=np.bool_)
    for user, of_user in of_users.items():
        for status, at in of_user:
            inside[users[user], at // DAY_MS - first :] = status == "ENTERED"
    return inside, users, first


@cache
def _text(day: int) -> str:
    return str(pd.Timestamp(day * DAY_MS, unit="ms").date())
