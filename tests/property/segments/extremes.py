"""Extreme values, and a definition's whole way through the package with extreme users. A step that raises fails the test."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from types import SimpleNamespace
from typing import Any

from starling_api.preview.explanation import explanation_json
from starling_common.outcome import Refused
from starling_rules.events import parse_object
from starling_segments import (
    DefinitionRefused,
    Evaluator,
    FieldError,
    Known,
    Segment,
    UserState,
    compile_plan,
    compile_preview,
    decode_state,
    encode_state,
    evaluate,
    fold_history,
    limitations,
    parse_segment,
    plain,
    required_history,
)  # fmt: skip

Doc = dict[str, Any]
EVERY = int(os.environ.get("STARLING_EXTREMES_EVERY", "97"))
"""Every n-th combination is tried; 1: all."""
KNOWN = Known(segments={"other": frozenset()}, computed_traits=frozenset({"clv"}), lists=frozenset({"vips"}), accounts=True)
FIRST_MS, LAST_MS = 0, 253_402_300_799_999
"""The times that the normalizer accepts: 1970 to the end of 9999."""
LATE_MS = LAST_MS - 86_400_000
MID_MS = 1_774_745_990_000
ZONES = ("UTC", "Pacific/Kiritimati", "Etc/GMT+12")
"""Kiritimati is 14 hours ahead of UTC, the other zone 12 hours behind."""

INTEGERS = [
    0, 1, -1, 2**31 - 1, 2**31, -(2**31) - 1, 2**53 - 1, -(2**53 - 1), 2**53, 2**53 + 1, -(2**53), 2**63 - 1, 2**63, -(2**63) - 1,
    2**64, 10**18, 10**400, -(10**400), -62_135_596_800_000, LAST_MS, LAST_MS + 1,
]  # fmt: skip
FLOATS = [-0.0, 0.5, 1.5, 1e15, 2.0**53, 1e290, 1.1e290, 1e308, -1e308, 1.7976931348623157e308, 5e-324, -5e-324, 1e22, 1e-400]
NO_NUMBERS = [math.inf, -math.inf, math.nan]
DATES = [
    "0000-01-01", "0001-01-01", "0001-01-02", "9999-12-29", "9999-12-30", "9999-12-31", "2026-02-30", "2026-03-01",
    "0001-01-01T00:00:00+14:00", "0001-01-02T00:00:00-12:00", "9999-12-31T23:59:59.999999999Z", "9999-12-31T23:59:59-14:00",
    "2026-03-01T00:00:00+14:00", "2026-03-01T00:00:00+23:59", "2026-03-01T00:00:00+24:00", "2026-03-01T00:00:00-99:99",
    "2026-03-01T24:00:00Z", "2026-03-01T23:59:60Z",
]  # fmt: skip
DURATIONS = ["0s", "1s", "1095d", "1096d", "999999999w", "1000000000000000000d", "-1d", "9" * 5_000 + "d"]
TEXTS = [
    "", " ", "a", "monday", "string", "\x00", "a\x00b", "İ", "ß", "٣", "x" * 5_000, "9" * 5_000, "NaN", "1e400", "(",
    "(a{1000}){1000}",    ".*", "1.0.0", "9" * 250 + ".0.0", "9" * 5_000 + ".0.0", "1.0.0-" + "9" * 200, "1.0.0-a..b",
]  # fmt: skip
NO_TEXTS = ["\ud800", "a\udfffb"]


def nested(levels: int) -> Any:
    """Return alternating lists and objects, nested this deep."""
    value: Any = 1
    for level in range(levels):
        value = [value] if level % 2 else {"v": value}
    return value


SCALARS: list[Any] = [*INTEGERS, *FLOATS, *DATES, *DURATIONS, *TEXTS, True, False, None]
COLLECTIONS: list[Any] = [
    [], {}, [None], [[]], [0, 0], [1, 0], [10**400, 0], [2**53, 0], [1e308, 1e308], ["a", 1, True, None, {"v": [1]}],
    [{"*": 5}], [{"*": "ab"}, {"*": [1]}], [[[1], 2], "ab"], {"*": {"*": 1}}, [1e308] * 300, list(range(300)),
    {"lat": 90, "lon": -180}, {"lat": 1e308, "lon": 10**400}, {"lat": -0.0, "lon": 5e-324}, {"v": 10**400}, nested(30),
]  # fmt: skip
VALUES: list[Any] = [*SCALARS, *COLLECTIONS]
"""The extreme values of traits and properties; the decoders of events and profiles refuse any other."""
OPERANDS: list[Any] = [*VALUES, *NO_NUMBERS, *NO_TEXTS, ["\ud800"], {"\ud800": 1}, nested(100), ["a"] * 10_001]
"""The extreme values in definitions: anything that Python reads from JSON."""
UNREADABLE = ["1e400", "-1e400", "NaN", "Infinity", "9" * 5_000, '"\\ud800"', '{"\\udfff": 1}', "[" * 3_000 + "]" * 3_000]
"""JSON texts of numbers and strings that no user's value can have."""


def sampled(*choices: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """Return every n-th combination."""
    for number, combination in enumerate(product(*choices)):
        if number % EVERY == 0:
            yield combination


def placed_in(schema: Any, value: Any) -> Iterator[Any]:
    """Return the value at each position of an operand of this schema: itself, in a list, in a pair, as each field of an object."""
    yield value
    for kind in schema.get("anyOf", [schema]):
        if kind.get("type") == "array":
            yield [value]
            yield [value, 0]
            yield [0, value]
            yield [value, value]
        fields = kind.get("properties", {})
        for name in fields:
            yield {**dict.fromkeys(fields, 0), name: value}


def parsed(where: Any, zone: str = "UTC", key: str = "s") -> Segment | None:
    """Return the segment; None if the definition is refused with a location and an expectation for each error."""
    try:
        return parse_segment({"key": key, "name": "s", "timezone": zone, "where": where}, KNOWN)
    except DefinitionRefused as refused:
        _check(refused.errors)
        return None


def _check(faults: Sequence[FieldError]) -> None:
    assert faults
    for fault in faults:
        assert fault.pointer.startswith("/where"), fault
        assert fault.message, fault
        assert fault.expected, fault
        json.dumps([fault.pointer, fault.message, fault.expected], ensure_ascii=False).encode()


def through_json(value: Any) -> Any:
    """Return a value as the segmenter reads it."""
    found = parse_object(json.dumps({"v": value}))
    assert not isinstance(found, Refused), found
    return found["v"]


def event(properties: Doc, time_ms: int, name: str = "A") -> Any:
    return SimpleNamespace(name=name, time_ms=time_ms, properties=properties, context=properties)


class User:
    """One user under a plan. The state is serialised after every step."""

    def __init__(self, segments: Sequence[Segment], zone: str = "UTC") -> None:
        self.segments = {segment.key: segment for segment in segments}
        self.zone = zone
        self.evaluator: Evaluator = Evaluator(compile_plan(list(segments)))
        self.state = UserState(user_id="u")
        self.now = FIRST_MS
        self.past: list[tuple[Any, int]] = []

    @classmethod
    def of(cls, wheres: Mapping[str, Doc], zone: str) -> User:
        """Return a user under the valid conditions: a date may be out of range in another zone."""
        return cls([found for key, where in wheres.items() if (found := parsed(where, zone, key)) is not None], zone)

    def does(self, properties: Doc, time_ms: int, name: str = "A") -> None:
        happened = event(properties, time_ms, name)
        self.now = max(self.now, time_ms)
        self.past.append((happened, self.now))
        self.steps(lambda: self.evaluator.on_event(self.state, happened, self.now))

    def becomes(self, traits: Doc, now: int) -> None:
        self.now = max(self.now, now)
        self.steps(lambda: self.evaluator.on_profile(self.state, traits, [], self.now))

    def passes(self, until: int, most: int = 20) -> None:
        """Fire up to `most` timers one by one, then the others at once."""
        for _ in range(most):
            due = self.evaluator.next_due(self.state)
            if due is None or due > until:
                break
            assert due > self.now
            self.now = due
            self.steps(lambda: self.evaluator.on_timer(self.state, self.now))
        self.now = max(self.now, until)
        self.steps(lambda: self.evaluator.on_timer(self.state, self.now))

    def steps(self, act: Callable[[], object]) -> None:
        """Take a step, then store and read the state."""
        act()
        data = encode_state(self.state)
        again = decode_state(data)
        assert same(plain(again), plain(self.state))
        self.state = decode_state(data)
        assert encode_state(self.state) == data

    def members(self) -> set[str]:
        return {key for key, membership in self.state.memberships.items() if membership.member}

    def explained(self, wheres: Mapping[str, Any]) -> None:
        """Return explain as the API does; it agrees with the membership."""
        for key in self.segments:
            explanation = self.evaluator.explain(self.state, key, self.now)
            assert explanation["tree"]["truth"] is explanation["member"] is (key in self.members()), wheres[key]
            answer = explanation_json(explanation, {"where": wheres[key]})
            json.dumps(answer, ensure_ascii=False, allow_nan=False).encode()

    def previewed(self, key: str) -> bool:
        """Return whether the user would be a member, by a preview with no accumulators stored."""
        preview = compile_preview(self.segments[key], {}, None, set())
        past = required_history(preview, frozenset(), self.now)
        limitations(preview, frozenset(), past, 86_400_000)
        state = decode_state(encode_state(self.state))
        memory = None if past is None else (fold_history(past, state, self.past, self.now), past.fresh)
        return evaluate(preview, state, memory, self.now).after


def same(one: Any, other: Any) -> bool:
    """Return whether values and their types are equal."""
    return json.dumps(one, sort_keys=True, default=repr) == json.dumps(other, sort_keys=True, default=repr)
