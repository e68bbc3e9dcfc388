"""Pure core: what the fold needs from the world, in its own words."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from starling_stream.model.backing_store import Standing
from starling_stream.model.meta import TaskMeta
from starling_stream.model.processor import Inbound, Output


class Refusal(NamedTuple):
    """A record for the dead letters, and why."""

    record: Inbound
    code: str
    message: str


class Changed(NamedTuple):
    """A key whose row a unit of work changed; both rows as in `rows`, `before` is None for a new key."""

    before: bytes | None
    after: bytes


class Sealed(NamedTuple):
    """All that one unit of work of one task comes to. It happens whole, in one transaction, or not at all."""

    partition: int
    meta: TaskMeta
    changes: Mapping[bytes, Changed]
    outputs: Sequence[Output]
    refusals: Sequence[Refusal]
    fired: int
    drained: bool
    """No timer is left that is due at `meta.stream_time_ms`."""
    sent: Sequence[Output] = ()
    """Outputs that go to the partition of their key, whichever that is."""
    late_ms: int = 0
    """How far stream time had passed the oldest timer that was fired."""


class StateView(Protocol):
    """One task's rows as of now. Rows are those of `rows`."""

    def rows(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The keys' rows, in their order; None where there is none."""

    def due(self, until_ms: int, limit: int) -> list[tuple[int, bytes]]:
        """The first (due, key) up to and at that instant, ascending."""

    def keys(self, after: bytes, limit: int) -> list[bytes]:
        """The first keys greater than `after` that have a state, ascending."""


class PartialView(StateView, Protocol):
    """A view of which some users are not local yet. `keys` has to wait until all are."""

    def covers(self, keys: Sequence[bytes], until_ms: int) -> bool:
        """Whether these keys can be read at once; if not, they are brought, and so is who is due up to that instant."""

    def sees(self, until_ms: int) -> bool:
        """Whether everybody due up to that instant is local."""

    def hurry(self) -> None:
        """Somebody waits for all users."""


class Tail(NamedTuple):
    """The rows that a restored task's tier lacks. `whole`: there is nothing else that it lacks.

    `position`: the changelog offset before which everything is committed; `meta`: the task's own row there.
    `incarnation`: the tier's, None when it did not answer.
    """

    incarnation: int | None
    rows: Mapping[bytes, bytes]
    position: int
    meta: TaskMeta
    whole: bool


class Lowest(Protocol):
    """Says, from any thread and at once, an instant in milliseconds before which nobody in a task is due."""

    def __call__(self) -> int:
        """May be earlier than the latest such instant."""


class BackingTier(Protocol):
    """The tier behind the local stores: makes a restore short. None of it is needed for correctness.

    `standing`, `begin` and the reads block; the others return at once.
    """

    on: bool
    """Whether there is one at all."""
    buckets: int

    def standing(self, partition: int) -> Standing | None:
        """What the tier holds of a partition; None when it does not answer."""

    def begin(self, partition: int, incarnation: int) -> bool:
        """Begin to keep the partition anew; False when the tier does not answer."""

    def track(self, partition: int, store: "FilledStore", tail: Tail, lowest: Lowest) -> None:
        """From now on this worker commits for the partition."""

    def committed(self, partition: int, changes: Mapping[bytes, Changed], meta: TaskMeta, position: int) -> None:
        """States were committed; `position` is the changelog offset after them. Called by the commit thread."""

    def release(self, partition: int) -> None:
        """This worker does not commit for the partition any more. Its store is not used after this returns."""

    def pressure(self) -> float:
        """Seconds to wait before the next round: more than 0 when the tier is far behind."""


class FilledStore(Protocol):
    """What the tier may ask of a task's store, in its own thread."""

    def rows_after(self, after: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """The first (key, row) greater than `after`, ascending."""

    def cold(self) -> frozenset[int]:
        """The buckets of which some users are in the tier alone."""

    def incarnation(self) -> int | None:
        """The tier's incarnation that goes with this store."""

    def set_incarnation(self, incarnation: int) -> None:
        """Remember it."""


class NoBackingTier:
    """The changelog alone: a restore reads it from the local position, or from its start."""

    on = False
    buckets = 1

    def standing(self, partition: int) -> Standing | None:  # noqa: ARG002
        """Holds nothing."""
        return None

    def begin(self, partition: int, incarnation: int) -> bool:  # noqa: ARG002
        """Holds nothing."""
        return False

    def track(self, partition: int, store: FilledStore, tail: Tail, lowest: Lowest) -> None:
        """Keeps nothing."""

    def committed(self, partition: int, changes: Mapping[bytes, Changed], meta: TaskMeta, position: int) -> None:
        """Keeps nothing."""

    def release(self, partition: int) -> None:
        """Keeps nothing."""

    def pressure(self) -> float:
        """Is never behind."""
        return 0.0


class RecordSource(Protocol):
    """The records of a topic's partition from its start up to an offset, exclusive."""

    def __call__(self, topic: str, partition: int, until: int) -> Iterable[Inbound]:
        """May block; raises what the client raises."""
