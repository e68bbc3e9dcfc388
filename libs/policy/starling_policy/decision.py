"""Pure core: the decision about one message at one instant: send it, defer it or drop it.

A deferred message is evaluated again at the instant of its deferral, because other messages may have taken the slots meanwhile.
"""

from dataclasses import dataclass
from typing import Final, TypeAlias

from starling_policy.campaign import DEFER
from starling_policy.checks import CAPPED, CHECKS, FAILED, QUIET_HOURS, Check
from starling_policy.document import Policy
from starling_policy.local_time import first_allowed, timezone_of
from starling_policy.person import Message, Person
from starling_policy.shares import variant_of

_CAPS: Final = "caps"


@dataclass(frozen=True, slots=True)
class Send:
    """The message is requested now."""


@dataclass(frozen=True, slots=True)
class Defer:
    """The message waits. `until`: the earliest instant that satisfies quiet hours and caps, epoch ms."""

    until: int
    reason: str


@dataclass(frozen=True, slots=True)
class Drop:
    """The message is never requested."""

    reason: str


Outcome: TypeAlias = Send | Defer | Drop


@dataclass(frozen=True, slots=True)
class Decision:
    """What happens to a message, with the result of every check. `variant`: also of people who are held out.

    `next_change_at`: the earliest instant at which time alone may change the outcome or its reason, epoch ms; None for never.
    """

    outcome: Outcome
    checks: tuple[Check, ...]
    variant: str | None
    next_change_at: int | None

    @property
    def reasons(self) -> tuple[str, ...]:
        """Return the reasons of all failed checks, in order; the first one decides."""
        return tuple(check.reason for check in self.checks if check.reason is not None)


def decide(message: Message, person: Person, policy: Policy, now: int) -> Decision:
    """Return the decision about a message at `now`, epoch ms.

    Raises: ValueError if the message is not due at `now`, or if the person has a past message after `now`.
    """
    if now < message.due_at:
        raise ValueError(f"the message is due at {message.due_at}, after {now}: decide about it then")
    newest = next(person.history.newest_first(), None)
    if newest is not None and newest.at > now:
        raise ValueError(f"the history has a message at {newest.at}, after {now}: decide in the order of instants")
    checks = tuple(check(message, person, policy, now) for check in CHECKS)
    deciding = next((i for i, check in enumerate(checks) if check.outcome == FAILED), len(checks))
    changes = [check.next_change_at for check in checks[: deciding + 1] if check.next_change_at is not None]
    outcome = Send() if deciding == len(checks) else _failed(message, person, policy, now, checks, checks[deciding])
    rules = message.rules
    variant = None if rules.campaign is None else variant_of(rules.campaign, rules.variants, person.user_id)
    return Decision(outcome, checks, variant, min(changes, default=None))


def _failed(message: Message, person: Person, policy: Policy, now: int, checks: tuple[Check, ...], first: Check) -> Outcome:
    """Return the outcome after the first failed check. Quiet hours and caps share one wait, whatever the mode of the other one."""
    reason = first.reason or ""
    mode = {QUIET_HOURS: message.rules.quiet, CAPPED: message.rules.caps}.get(reason)
    if mode != DEFER:
        return Drop(reason)
    slot = next(check for check in checks if check.name == _CAPS)
    free_at = slot.next_change_at if slot.outcome == FAILED else now
    if free_at is None:
        return Drop(reason)
    until = first_allowed(policy.quiet_hours, timezone_of(person.traits, policy.timezone), free_at)
    return Defer(until, reason) if until <= message.expires_at else Drop(reason)
