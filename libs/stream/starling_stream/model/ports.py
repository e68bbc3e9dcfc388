"""Pure core: the ports of the fold."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from starling_common.outcome import Refused
from starling_stream.model.backing_store import Checkpoint
from starling_stream.model.meta import TaskMeta
from starling_stream.model.processor import Inbound, Output


class Refusal(NamedTuple):
    """A record for the dead-letter topic, and the reason."""

    record: Inbound
    code: str
    message: str


class Changed(NamedTuple):
    """A key whose row a unit of work changed; `before` is None for a new key. A row is the due bytes and the state."""

    before: bytes | None
    after: bytes


class Sealed(NamedTuple):
    """The complete result of one unit of work of one task. One transaction commits all of it or nothing."""

    partition: int
    meta: TaskMeta
    changes: Mapping[bytes, Changed]
    outputs: Sequence[Output]
    refusals: Sequence[Refusal]
    fired: int
    drained: bool
    """No timer is left that is due at `meta.stream_time_ms`."""
    sent: Sequence[Output] = ()
    """Outputs to the partition of their key, which may differ from the task's."""
    late_ms: int = 0
    """The difference between stream time and the oldest timer that was fired."""


class TaskFailures(Protocol):
    """Failures of a task's units. The position of the last one survives a restart of the process."""

    def failed_at(self) -> int | None:
        """Return the number of committed units at the last failure; None if there was none."""

    def failed(self, units: int, cause: Exception) -> None:
        """Log a failure after that many committed units, and store the position of a first failure there.

        A second failure at the same position starts the search for the record that causes it.
        """

    def found(self, origin: str, why: Refused) -> None:
        """Log the record or timer that a search found."""


class NoFailures:
    """Stores and logs nothing."""

    def failed_at(self) -> int | None:
        """Return None."""
        return None

    def failed(self, units: int, cause: Exception) -> None:
        """Do nothing."""

    def found(self, origin: str, why: Refused) -> None:
        """Do nothing."""


class StateView(Protocol):
    """The current rows of one task. A row contains the instant of the key's timer and its state."""

    def rows(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the rows in the order of the keys; None where a key has none."""

    def due(self, until_ms: int, limit: int) -> list[tuple[int, bytes]]:
        """Return the first (due, key) up to and including that instant, ascending."""

    def keys(self, after: bytes, limit: int) -> list[bytes]:
        """Return the first keys after `after` that have a state, ascending."""


class PartialView(StateView, Protocol):
    """A view without the users that are still only in the backing store. `keys` is unavailable until all are loaded."""

    def is_loaded(self, keys: Sequence[bytes], until_ms: int) -> bool:
        """Return whether these keys can be read. If not, start to load them, and the users due up to that instant."""

    def is_loaded_until(self, until_ms: int) -> bool:
        """Return whether all users due up to that instant are loaded."""

    def expedite(self) -> None:
        """Load the remaining users without pauses."""


class Tail(NamedTuple):
    """The rows of a restored task that the backing store lacks. `whole`: it lacks nothing else.

    `position`: the changelog offset before which everything is committed; `meta`: the task's own row there. `incarnation`: that of
    the backing store, None if it did not respond.
    """

    incarnation: int | None
    rows: Mapping[bytes, bytes]
    position: int
    meta: TaskMeta
    whole: bool


class EarliestDue(Protocol):
    """Returns an instant in milliseconds before which no user of a task is due, from any thread and without blocking."""

    def __call__(self) -> int:
        """The instant may be earlier than the first timer."""


class StateFlusher(Protocol):
    """Flushes committed states to the backing store, which makes a restore short. It is not needed for correctness.

    `checkpoint`, `begin` and the reads block; the other methods return at once.
    """

    on: bool
    """Whether a backing store is configured."""
    buckets: int

    def checkpoint(self, partition: int) -> Checkpoint | None:
        """Return the checkpoint of a partition; None if the backing store does not respond."""

    def begin(self, partition: int, incarnation: int) -> bool:
        """Create an incarnation of the partition; return False if the backing store does not respond."""

    def track(self, partition: int, store: "FilledStore", tail: Tail, earliest_due_ms: EarliestDue) -> None:
        """Flush the commits of this partition from now on."""

    def committed(self, partition: int, changes: Mapping[bytes, Changed], meta: TaskMeta, position: int) -> None:
        """Take committed changes from the commit thread; `position` is the changelog offset after them."""

    def release(self, partition: int) -> None:
        """Stop flushing the partition. Its store is not used after this returns."""

    def pressure(self) -> float:
        """Return the seconds to wait before the next batch: more than 0 when too many bytes are unflushed."""


class FilledStore(Protocol):
    """The methods of a task's store that the flusher calls from its thread."""

    def rows_after(self, after: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Return the first (key, row) after `after`, ascending."""

    def unloaded(self) -> frozenset[int]:
        """Return the buckets with users that are only in the backing store."""

    def incarnation(self) -> int | None:
        """Return the incarnation of the backing store that belongs to this store."""

    def set_incarnation(self, incarnation: int) -> None:
        """Store the incarnation."""


class NoFlusher:
    """Without a backing store: a restore replays the changelog from the local position, or from its start."""

    on = False
    buckets = 1

    def checkpoint(self, partition: int) -> Checkpoint | None:  # noqa: ARG002
        """Return None: there is no checkpoint."""
        return None

    def begin(self, partition: int, incarnation: int) -> bool:  # noqa: ARG002
        """Return False: there are no incarnations."""
        return False

    def track(self, partition: int, store: FilledStore, tail: Tail, earliest_due_ms: EarliestDue) -> None:
        """Do nothing."""

    def committed(self, partition: int, changes: Mapping[bytes, Changed], meta: TaskMeta, position: int) -> None:
        """Do nothing."""

    def release(self, partition: int) -> None:
        """Do nothing."""

    def pressure(self) -> float:
        """Return 0: nothing is unflushed."""
        return 0.0
