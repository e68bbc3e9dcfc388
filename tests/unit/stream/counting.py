"""A small service for tests: counts a key's events, emits each count, and emits "quiet" an hour after the last event."""

from collections.abc import Sequence

import msgspec

from starling_common.settings import Clock
from starling_common.wire import DecodeError
from starling_stream.model.processor import Decoded, History, Inbound, Service, Unit

HOUR_MS = 3_600_000


class Counted(msgspec.Struct):
    total: int = 0
    last_ms: int = 0
    plan: str = ""


class Event(msgspec.Struct):
    received_at: int
    at_ms: int | None = None
    refuse: bool = False


_encode, _decode = msgspec.msgpack.encode, msgspec.msgpack.Decoder(Counted).decode


def event(received_at: int, at_ms: int | None = None, *, refuse: bool = False) -> bytes:
    return msgspec.json.encode(Event(received_at, at_ms, refuse))


class Counter:
    def __init__(self, out: str = "out", source: str = "in", plan: bytes = b"") -> None:
        self.out = out
        self.source = source
        self.plan = plan
        self.plan_before: bytes | None = None
        self.prefixes: Sequence[bytes] | None = None
        self.seen_in_history: list[int] = []
        self.outputs = 1
        """Outputs of each record, and of each switched key as many more."""

    def decode(self, topic: str, value: bytes) -> Decoded:
        try:
            decoded = msgspec.json.decode(value, type=Event)
        except msgspec.DecodeError as error:
            raise DecodeError("not_json", str(error)) from error
        return Decoded(decoded, decoded.received_at, decoded.at_ms)

    def encode_state(self, state: Counted) -> bytes:
        return _encode(state)

    def decode_state(self, data: bytes) -> Counted:
        return _decode(data)

    def process(self, record: Inbound, unit: Unit[Counted]) -> None:
        if record.value.refuse:
            unit.refuse(record, "asked_to", "the test asked for it")
            return
        state = unit.get(record.key) or Counted()
        state.total += 1
        state.last_ms = max(state.last_ms, unit.stream_time_ms)
        unit.put(record.key, state, state.last_ms + HOUR_MS)
        for _ in range(self.outputs):
            unit.emit(self.out, record.key, b"%d" % state.total, record.received_at, [])

    def fire(self, key: bytes, unit: Unit[Counted]) -> None:
        state = unit.get(key)
        assert state is not None
        unit.put(key, state, None)
        unit.emit(self.out, key, b"quiet since %d" % state.last_ms, unit.stream_time_ms * 1000, [])

    def adopt_plan(self) -> bytes:
        return self.plan

    def has_plan(self, plan: bytes) -> bool:
        return plan in (self.plan, self.plan_before)

    def before_switch(self, history: History) -> None:
        self.seen_in_history = [record.offset for record in history.records(self.source)]

    def switched_prefixes(self, partition: int) -> Sequence[bytes] | None:
        return self.prefixes

    def switch(self, key: bytes, state: Counted, unit: Unit[Counted]) -> None:
        state.plan = self.plan.decode()
        unit.put(key, state, state.last_ms + HOUR_MS)
        for _ in range(self.outputs - 1):
            unit.emit(self.out, key, self.plan, 0, [])

    def after_switch(self, unit: Unit[Counted]) -> None:
        unit.emit(self.out, b"plan", b"%s after %d" % (self.plan, len(self.seen_in_history)), 0, [])


def counting(clock: Clock = Clock.EVENT, **more: object) -> Service[Counted]:
    settings: dict[str, object] = {"stage": "counter", "inputs": ("in",), "hold_ms": 20, "clock_topics": ("clock",)} | more
    return Service(processor=Counter(), clock=clock, **settings)  # type: ignore[arg-type]
