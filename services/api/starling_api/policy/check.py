"""Pure core: decides about a requested check and returns the response document."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import msgspec

from starling_api.messages.people import KnownPerson
from starling_api.policy.request import RequestedCheck
from starling_common.time.instants import format_instant, parse_instant
from starling_policy import Decision, Defer, Drop, History, Message, Person, Send, decide
from starling_segments import DefinitionRefused, FieldError

Document = dict[str, Any]

_INSTANT_SUFFIX: Final = "_at"


def with_known(requested: RequestedCheck, known: KnownPerson) -> RequestedCheck:
    """Return the check with what the messenger keeps of the user, as far as the body does not give it.

    A message that was decided on arrival may be later than `as_of`, and than the instant of the check: it does not count.
    """
    state, at = known.state, known.as_of_ms if requested.at is None else requested.at
    kept: dict[str, Any] = {
        "devices": {channel: tuple(addresses) for channel, addresses in state.devices.items()},
        "consent_changes": tuple(state.consent),
        "history": History(one for one in state.ledger if one.at <= at),
        "traits": msgspec.json.decode(state.traits),
    }
    names = {"devices": "devices", "consent": "consent_changes", "messages": "history", "traits": "traits"}
    return replace(requested, **{to: kept[to] for name, to in names.items() if name not in requested.given})


def checked(requested: RequestedCheck, traits: Mapping[str, Any], as_of: str | None) -> Document:
    """Return the decision about a message that is due at the requested instant, by default at `as_of`, with every check.

    Membership, cancelling events and rivals are not considered. Raises: DefinitionRefused for an instant before `as_of` or before a
    past message, and without any instant.
    """
    at = _instant_of(requested, as_of)
    person = Person(
        requested.user, traits, requested.devices, requested.consent_changes, requested.suppressions, requested.history
    )  # fmt: skip
    decision = decide(Message(requested.rules, at), person, requested.policy, at)
    return {
        **_outcome(decision),
        "reasons": list(decision.reasons),
        "variant": decision.variant,
        "next_change_at": _instant(decision.next_change_at),
        "checks": [
            {
                "check": one.name,
                "outcome": one.outcome,
                "reason": one.reason,
                "observed": _readable(one.observed),
                "next_change_at": _instant(one.next_change_at),
            }
            for one in decision.checks
        ],
        "at": _instant(at),
        "as_of": as_of,
    }


def _outcome(decision: Decision) -> Document:
    match decision.outcome:
        case Send():
            action, until, reason = "send", None, None
        case Defer(until, reason):
            action = "defer"
        case Drop(reason):
            action, until = "drop", None
    return {"verdict": action, "until": _instant(until), "reason": reason}  # vocabulary: verdict: a field of the contract


def _instant_of(requested: RequestedCheck, as_of: str | None) -> int:
    stream_time = None if as_of is None else parse_instant(as_of)
    at = stream_time if requested.at is None else requested.at
    if at is None:
        message = "there is no stream time before the first event, and no instant is given"
        raise DefinitionRefused((FieldError("", "missing_field", message, '"at": an instant in ISO 8601'),))
    if stream_time is not None and at < stream_time:
        raise DefinitionRefused((FieldError("/at", "out_of_range", f"the instant is before {as_of}", f"{as_of} or later"),))
    newest = next(requested.history.newest_first(), None)
    if newest is not None and newest.at > at:
        message = f"a message was requested at {format_instant(newest.at)}, after the instant of the check"
        raise DefinitionRefused((FieldError("/messages", "out_of_range", message, f"messages up to {format_instant(at)}"),))
    return at


def _instant(at_ms: int | None) -> str | None:
    return None if at_ms is None else format_instant(at_ms)


def _readable(value: Any) -> Any:
    """Return the observation with its instants in ISO 8601."""
    if isinstance(value, Mapping):
        return {
            name: _instant(part) if name.endswith(_INSTANT_SUFFIX) else _readable(part) for name, part in value.items()
        }  # fmt: skip
    return [_readable(part) for part in value] if isinstance(value, list) else value
