"""Pure core: the unit of work. Reads see the unit's own writes, then the rows below; writes are stored when it is sealed."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple

from starling_common.headers import Headers
from starling_stream.model.errors import StatesTooLarge, StateUnreadable
from starling_stream.model.meta import TaskMeta
from starling_stream.model.ports import Changed, Refusal, Sealed
from starling_stream.model.processor import Inbound, Output, Processor, S
from starling_stream.model.rows import MAX_STATE_BYTES, gone_after, row_after

_UNREAD: Final[Any] = object()
_new = tuple.__new__  # hot: a named tuple's own constructor takes twice as long


class Mark(NamedTuple):
    """The state of a unit for one key: its bytes (None for none), its timer, and the number of outputs so far."""

    state: bytes | None
    put: bool
    due_ms: int | None
    emitted: int
    sent: int
    refused: int
    order: int


class UnitOfWork(Generic[S]):
    """The `Unit` that processors get. Each state is decoded once and encoded once, however many records change it."""

    __slots__ = (
        "_due",
        "_emitted",
        "_processor",
        "_read",
        "_refused",
        "_rows",
        "_sent",
        "_states",
        "emit",
        "order",
        "partition",
        "plan",
        "stream_time_ms",
    )

    def __init__(
        self,
        partition: int,
        plan: bytes,
        stream_time_ms: int,
        processor: Processor[S],
        read: Callable[[Sequence[bytes]], list[bytes | None]],
        order: int = 0,
    ) -> None:
        """`read` returns the rows of many keys at once. `order`: the last one of the task."""
        self.partition = partition
        self.plan = plan
        self.order = order
        self.stream_time_ms = stream_time_ms
        self._processor = processor
        self._read = read
        self._rows: dict[bytes, bytes | None] = {}
        self._states: dict[bytes, S | None] = {}
        self._due: dict[bytes, int | None] = {}
        self._emitted: list[Output] = []
        self._sent: list[Output] = []
        self._refused: list[Refusal] = []
        append = self._emitted.append

        def emit(topic: str, key: bytes, value: bytes, received_at: int, headers: Headers) -> None:
            append(_new(Output, (topic, key, value, received_at, headers)))

        self.emit = emit

    def load(self, keys: Iterable[bytes]) -> None:
        """Read the rows of these keys at once; rows that were read before are kept."""
        rows = self._rows
        missing = [key for key in dict.fromkeys(keys) if key not in rows]
        if missing:
            rows.update(zip(missing, self._read(missing), strict=True))

    def get(self, key: bytes) -> S | None:
        """As `Unit.get`."""
        state = self._states.get(key, _UNREAD)
        if state is not _UNREAD:
            return state
        row = self._rows.get(key, _UNREAD)
        if row is _UNREAD:
            self.load((key,))
            row = self._rows[key]
        try:
            found = None if row is None or len(row) < 16 else self._processor.decode_state(row[16:])
        except Exception as cause:
            raise StateUnreadable(f"the state of {key!r} cannot be decoded: {type(cause).__name__}: {cause}") from cause
        self._states[key] = found
        return found

    def put(self, key: bytes, state: S, due_ms: int | None) -> None:
        """As `Unit.put`. The state is encoded when the unit is sealed: it must not be shared with another key."""
        self._states[key] = state
        self._due[key] = due_ms

    def delete(self, key: bytes) -> None:
        """As `Unit.delete`."""
        self._states[key] = None
        self._due[key] = None

    def stamp(self, received_at: int) -> tuple[int, int]:
        """As `Unit.stamp`."""
        previous = self.order
        self.order = order = max(received_at, previous + 1)
        return order, previous

    def send(self, output: Output) -> None:
        """As `Unit.send`."""
        self._sent.append(output)

    def refuse(self, record: Inbound, code: str, message: str) -> None:
        """As `Unit.refuse`."""
        self._refused.append(Refusal(record, code, message))

    def last_received_at(self) -> int:
        """Return the greatest `received_at` of the outputs so far; 0 without one."""
        return max([output.received_at for output in self._emitted], default=0)

    def has_put(self, key: bytes) -> bool:
        """Return whether this unit wrote the key."""
        return key in self._due

    def written(self) -> int:
        """Return how many keys this unit wrote."""
        return len(self._due)

    def due_of(self, key: bytes) -> int | None:
        """Return the timer that this unit wrote for the key, if any."""
        return self._due.get(key)

    def due_until(self, instant_ms: int) -> list[tuple[int, bytes]]:
        """Return the (due, key) of keys that this unit wrote and that are due at that instant, unordered."""
        return [(due, key) for key, due in self._due.items() if due is not None and due <= instant_ms]

    def mark(self, key: bytes) -> Mark:
        """Return a mark for `take_back`, which is called if the next record is refused."""
        state = self.get(key)
        kept = None if state is None else self._processor.encode_state(state)
        put_out = len(self._emitted), len(self._sent), len(self._refused), self.order
        return Mark(kept, key in self._due, self._due.get(key), *put_out)

    def state_bytes(self, key: bytes) -> int:
        """Return the present size of the key's state."""
        state = self.get(key)
        return 0 if state is None else len(self._processor.encode_state(state))

    def take_back(self, key: bytes, mark: Mark) -> None:
        """Undo the writes to that key and all outputs since the mark."""
        self._states[key] = None if mark.state is None else self._processor.decode_state(mark.state)
        self._due.pop(key, None)
        if mark.put:
            self._due[key] = mark.due_ms
        self.order = mark.order
        del self._emitted[mark.emitted :]
        del self._sent[mark.sent :]
        del self._refused[mark.refused :]

    def changes(self, *, bounded: bool) -> dict[bytes, Changed]:
        """Encode the changed keys; a put of the stored state and timer is no change. Raises: StatesTooLarge, where `bounded`."""
        # Hot: runs once for each changed key; locals and one dictionary pass measured 20 % faster than small helpers.
        self.load(self._due)
        encode, rows, states = self._processor.encode_state, self._rows, self._states
        changes: dict[bytes, Changed] = {}
        largest = 0
        for key, due in self._due.items():
            before, state = rows[key], states[key]
            after = gone_after(before) if state is None else row_after(before, due, encode(state))
            if after is not None:
                changes[key] = _new(Changed, (before, after))
                largest = max(largest, len(after))
        if bounded and largest - 8 > MAX_STATE_BYTES:
            raise StatesTooLarge([key for key, (_, after) in changes.items() if len(after) - 8 > MAX_STATE_BYTES])
        return changes

    def seal(self, meta: TaskMeta, changes: Mapping[bytes, Changed], fired: int, drained: bool) -> Sealed:
        """Return the complete unit."""
        return Sealed(self.partition, meta, changes, self._emitted, self._refused, fired, drained, self._sent)
