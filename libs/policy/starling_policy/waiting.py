"""Pure core: the messages of one person that wait, and the order in which they are decided.

Each message is evaluated at its own instant, with what was true then: its due instant, the end of its deferral, or the instant at
which a slot was given back. At one instant the highest priority comes first, then the earlier due instant, then the key.
"""

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from starling_policy.bounds import MAX_PENDING
from starling_policy.checks import HOLDOUT
from starling_policy.decision import Decision, Defer, Drop, Send, decide
from starling_policy.document import Policy
from starling_policy.person import Message, PastMessage, Person

_Order = tuple[int, int, int, str, str]


class Waiting(NamedTuple):
    """A message that waits. `at`: the instant of its next evaluation, epoch ms. `deferred`: whether there was an earlier one."""

    message: Message
    at: int
    deferred: bool = False


class Decided(NamedTuple):
    """One evaluation of a message, at `at`."""

    message: Message
    at: int
    decision: Decision


class Progress(NamedTuple):
    """The evaluations up to an instant in their order, the messages that still wait, and the person after them."""

    decided: tuple[Decided, ...]
    waiting: tuple[Waiting, ...]
    person: Person


def waiting_message(message: Message, policy: Policy) -> Waiting:
    """Return a new message with the instant of its first evaluation.

    The instant is the due one, for a transactional message; of any other it is `priority_hold` later, but not after the expiry.
    """
    if message.rules.transactional:
        return Waiting(message, message.due_at)
    return Waiting(message, min(message.due_at + policy.priority_hold_ms, message.expires_at))


def decision_order(one: Waiting) -> _Order:
    """Return the sort key of a waiting message."""
    rules = one.message.rules
    return one.at, -rules.priority, one.message.due_at, rules.campaign or "", one.message.instance


def admit(waiting: Sequence[Waiting], newcomer: Waiting) -> tuple[tuple[Waiting, ...], Waiting | None]:
    """Return the waiting messages with the newcomer, in order, and the message that is dropped as `too_many`.

    Of more than `MAX_PENDING` the last one in decision order is dropped, which may be the newcomer.
    """
    ordered = sorted((*waiting, newcomer), key=decision_order)
    return tuple(ordered[:MAX_PENDING]), ordered[MAX_PENDING] if len(ordered) > MAX_PENDING else None


def wake(waiting: Iterable[Waiting], now: int) -> tuple[Waiting, ...]:
    """Return the waiting messages after a slot was given back: deferred ones are evaluated at `now`, if not earlier."""
    return tuple(one._replace(at=min(one.at, now)) if one.deferred else one for one in waiting)


def decide_until(waiting: Sequence[Waiting], person: Person, policy: Policy, now: int) -> Progress:
    """Evaluate the waiting messages up to and at `now`, each at its own instant. A request takes its slot at once.

    Raises: ValueError for more than `MAX_PENDING` messages.
    """
    if len(waiting) > MAX_PENDING:
        raise ValueError(f"{len(waiting)} messages wait: at most {MAX_PENDING}")
    queue = [(decision_order(one), i, one) for i, one in enumerate(waiting)]
    heapq.heapify(queue)
    decided: list[Decided] = []
    while queue and queue[0][2].at <= now:
        _, i, (message, at, _) = heapq.heappop(queue)
        decision = decide(message, person, policy, at)
        decided.append(Decided(message, at, decision))
        match decision.outcome:
            case Defer(until):
                again = Waiting(message, until, deferred=True)
                heapq.heappush(queue, (decision_order(again), i, again))
            case Send():
                person = _with_message(person, message, at, held_out=False)
            case Drop(reason) if reason == HOLDOUT:
                person = _with_message(person, message, at, held_out=True)
            case Drop():
                pass
    return Progress(tuple(decided), tuple(one for _, _, one in sorted(queue)), person)


def _with_message(person: Person, message: Message, at: int, *, held_out: bool) -> Person:
    rules = message.rules
    past = PastMessage(at, rules.channel, rules.purpose, rules.campaign, rules.dedupe_key, held_out)
    return replace(person, history=person.history.with_message(past))
