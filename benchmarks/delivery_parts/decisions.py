"""The CPU time of `decide`, the policy of one message, in process."""

import statistics
import timeit
from collections.abc import Callable
from dataclasses import replace
from time import process_time
from typing import Any, Final, NamedTuple

from delivery_parts.goals import READS_HISTORY
from starling_policy import Defer, Drop, History, Message, PastMessage, Person, Policy, Send, decide, parse_campaign, parse_policy

_NOON: Final = 1_767_268_800_000
"""2026-01-01T12:00:00Z."""
_HOUR_MS: Final = 3_600_000
_BETWEEN_MS: Final = 6_000_000
"""Between two earlier messages: a hundred of them fill a week, and the slot of the first one is free in time."""
_MOST_USERS: Final = 1_000
_TRAITS: Final = {"email": "ada@example.com", "name": "Ada", "consent": {"email": True}, "timezone": "Europe/Berlin", "plan": "pro"}
_LIMITS: Final = [{"limit": 100, "per": "7d"}, {"limit": 30, "per": "1d", "channels": ["email"]}]


class Case(NamedTuple):
    """A message to decide about. `outcome`: what the decision must be; `past`: the number of earlier messages."""

    outcome: type[Send | Defer | Drop]
    past: int
    purpose: str = "marketing"
    hour: int = 0
    """Hours after noon."""
    reads_history: bool = False
    """Whether the earlier messages are those of a new history each time, as at the first decision after a state is read."""


CASES: Final = {
    "transactional": Case(Send, 20, "transactional"),
    "marketing": Case(Send, 20),
    "marketing, 100 earlier messages": Case(Defer, 100),
    READS_HISTORY: Case(Defer, 100, reads_history=True),
    "quiet hours": Case(Defer, 20, hour=10),
}


def measured(number: int, rounds: int) -> dict[str, Any]:
    """Return the median CPU time of each case over the rounds, in µs."""
    found = {}
    for name, case in CASES.items():
        made = decision_of(case)
        taken = [timeit.timeit(made, number=number, timer=process_time) / number * 1e6 for _ in range(rounds)]
        found[name] = round(statistics.median(taken), 2)
    return {"decisions": number, "rounds": rounds, "cpu_us": found}


def decision_of(case: Case) -> Callable[[], object]:
    """Return a function that decides once. Raises: RuntimeError if no user has the outcome of the case."""
    policy = parse_policy({
        "timezone": "UTC", "quiet_hours": {"from": "21:00", "to": "08:00"}, "caps": _LIMITS, "control_group": {"percent": 5},
    })  # fmt: skip
    rules = parse_campaign({
        "key": "win-back", "channel": "email", "purpose": case.purpose, "reentry": {"after": "30d"}, "holdout": {"percent": 10},
        "variants": [{"key": "a", "weight": 50}, {"key": "b", "weight": 50}],
    })  # fmt: skip
    now = _NOON + case.hour * _HOUR_MS
    past = [PastMessage(now - (count + 1) * _BETWEEN_MS, "email", "marketing", "other") for count in range(case.past)]
    message, history = Message(rules, now, "1", now), History(past)
    for user in range(_MOST_USERS):  # some are held out
        person = Person(f"user-{user}", _TRAITS, history=history)
        if isinstance(decide(message, person, policy, now).outcome, case.outcome):
            return _reading(message, person, policy, past) if case.reads_history else _deciding(message, person, policy, now)
    raise RuntimeError(f"no decision of {case} is {case.outcome.__name__}: correct the case")


def _deciding(message: Message, person: Person, policy: Policy, now: int) -> Callable[[], object]:
    return lambda: decide(message, person, policy, now)


def _reading(message: Message, person: Person, policy: Policy, past: list[PastMessage]) -> Callable[[], object]:
    return lambda: decide(message, replace(person, history=History(past)), policy, message.due_at)
