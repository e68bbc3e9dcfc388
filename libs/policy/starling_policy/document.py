"""Pure core: the policy of a workspace: reads untrusted JSON, or returns all validation errors."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from starling_policy.bounds import MAX_CAP_LIMIT, MAX_CAPS, MAX_NAMES
from starling_policy.fields import KEY, Fields, read_duration, read_keys, read_percent, read_whole
from starling_policy.local_time import QuietHours, is_timezone
from starling_segments import Known, check_bounds
from starling_segments.language.validation import Location, Validation, finish, refuse_unknown_fields
from starling_segments.parse.document import KEY_PATTERN
from starling_segments.parse.groups import read_object

OPT_IN: Final = "opt_in"
OPT_OUT: Final = "opt_out"
LONGEST_PER: Final = "90d"
LONGEST_PRIORITY_HOLD: Final = "1d"
POLICY_FIELDS: Final = frozenset({"timezone", "quiet_hours", "caps", "consent", "control_group", "priority_hold"})

TIME_PATTERN: Final = "^([01][0-9]|2[0-3]):[0-5][0-9]$"
_TIME: Final = re.compile(TIME_PATTERN[:-1] + r"\Z")
_CAP_FIELDS: Final = frozenset({"channels", "purposes", "limit", "per"})
_A_CAP: Final = f'{{"limit": 0 to {MAX_CAP_LIMIT}, "per": a duration, "channels": keys, "purposes": keys}}'
_QUIET: Final = '{"from": "21:00", "to": "08:00"}'


@dataclass(frozen=True, slots=True)
class Cap:
    """At most `limit` messages in `(now - per, now]`. `channels`, `purposes`: the counted messages; None: all."""

    limit: int
    per_ms: int
    channels: frozenset[str] | None = None
    purposes: frozenset[str] | None = None

    def counts(self, channel: str, purpose: str) -> bool:
        """Return whether a message of this channel and purpose counts, and is limited."""
        return (self.channels is None or channel in self.channels) and (self.purposes is None or purpose in self.purposes)


@dataclass(frozen=True, slots=True)
class Policy:
    """The policy of a workspace. `opt_out`: channels in which consent is given unless it is denied.

    `control_share`: the control group, in hundredths of a percent.
    """

    timezone: str = "UTC"
    quiet_hours: QuietHours | None = None
    caps: tuple[Cap, ...] = ()
    opt_out: frozenset[str] = frozenset()
    control_share: int = 0
    priority_hold_ms: int = 0


def parse_policy(document: object, timezone: str = "UTC") -> Policy:
    """Return the policy of a JSON document. `timezone`: the workspace's, for a document without one.

    Raises: DefinitionRefused with all validation errors; those of `check_bounds` alone, if there are any.
    """
    check_bounds(document)
    validation = Validation(Known())
    policy = read_policy(document, Location(validation), timezone)
    finish(validation)
    return policy


def read_policy(document: object, location: Location, timezone: str) -> Policy:
    """Read a policy below `location`. Errors are recorded there."""
    fields = read_object(document, location, "a policy: an object")
    if fields is None:
        return Policy()
    refuse_unknown_fields(fields, POLICY_FIELDS, location)
    return Policy(
        timezone=_read_timezone(fields, location, timezone),
        quiet_hours=_read_quiet_hours(fields, location),
        caps=_read_caps(fields, location),
        opt_out=_read_consent(fields, location),
        control_share=_read_control_group(fields, location),
        priority_hold_ms=read_duration(fields, "priority_hold", location, LONGEST_PRIORITY_HOLD, 0),
    )


def _read_timezone(fields: Fields, location: Location, otherwise: str) -> str:
    zone = fields.get("timezone")
    if zone is None:
        return otherwise
    if not isinstance(zone, str) or not is_timezone(zone):
        location.at("timezone").refuse("bad_timezone", "unknown timezone", "an IANA name such as Europe/Berlin")
        return otherwise
    return zone


def _read_quiet_hours(fields: Fields, location: Location) -> QuietHours | None:
    if fields.get("quiet_hours") is None:
        return None
    child = location.at("quiet_hours")
    inner = read_object(fields["quiet_hours"], child, _QUIET)
    if inner is None:
        return None
    refuse_unknown_fields(inner, frozenset({"from", "to"}), child)
    start_ms, end_ms = (_read_time(inner, name, child) for name in ("from", "to"))
    if start_ms is None or end_ms is None:
        return None
    if start_ms == end_ms:
        expected = '"from" unlike "to"; leave quiet_hours out for none'
        child.refuse("bad_window", "quiet hours begin and end at the same time", expected)
        return None
    return QuietHours(start_ms, end_ms)


def _read_time(fields: Fields, name: str, location: Location) -> int | None:
    value, expected = fields.get(name), "a local time from 00:00 to 23:59"
    if value is None:
        location.refuse("missing_field", f"{name!r} is missing", f'"{name}": {expected}')
        return None
    if not isinstance(value, str) or not _TIME.match(value):
        location.at(name).refuse("wrong_type", "the value is not a time of the day", expected)
        return None
    return (int(value[:2]) * 60 + int(value[3:])) * 60_000


def _read_caps(fields: Fields, location: Location) -> tuple[Cap, ...]:
    value = fields.get("caps")
    if value is None:
        return ()
    child, expected = location.at("caps"), f"a list of at most {MAX_CAPS} caps: {_A_CAP}"
    if not isinstance(value, list):
        child.refuse("wrong_type", "the value is not a list", expected)
        return ()
    if len(value) > MAX_CAPS:
        child.refuse("too_wide", f"the policy has {len(value)} caps", expected)
        return ()
    caps = [_read_cap(one, child.at(i)) for i, one in enumerate(value)]
    return tuple(cap for cap in caps if cap is not None)


def _read_cap(document: object, location: Location) -> Cap | None:
    fields = read_object(document, location, _A_CAP)
    if fields is None:
        return None
    refuse_unknown_fields(fields, _CAP_FIELDS, location)
    return Cap(
        limit=read_whole(fields, "limit", location, 0, MAX_CAP_LIMIT),
        per_ms=read_duration(fields, "per", location, LONGEST_PER),
        channels=read_keys(fields, "channels", location),
        purposes=read_keys(fields, "purposes", location),
    )


def _read_consent(fields: Fields, location: Location) -> frozenset[str]:
    value = fields.get("consent")
    if value is None:
        return frozenset()
    child, expected = location.at("consent"), f'{{"email": "{OPT_OUT}"}}: at most {MAX_NAMES} channels, {OPT_IN} or {OPT_OUT} each'
    inner: Mapping[str, Any] | None = read_object(value, child, expected)
    if inner is None:
        return frozenset()
    if len(inner) > MAX_NAMES:
        child.refuse("too_wide", f"consent has {len(inner)} channels", expected)
        return frozenset()
    for channel, mode in inner.items():
        if not KEY.match(channel):
            child.at(channel).refuse("bad_key", "the channel is not a valid key", KEY_PATTERN)
        elif mode not in (OPT_IN, OPT_OUT):
            child.at(channel).refuse("wrong_type", "the value is not one of the choices", f"one of {OPT_IN}, {OPT_OUT}")
    return frozenset(channel for channel, mode in inner.items() if mode == OPT_OUT)


def _read_control_group(fields: Fields, location: Location) -> int:
    if fields.get("control_group") is None:
        return 0
    child = location.at("control_group")
    inner = read_object(fields["control_group"], child, '{"percent": 5}')
    if inner is None:
        return 0
    refuse_unknown_fields(inner, frozenset({"percent"}), child)
    return read_percent(inner, "percent", child)
