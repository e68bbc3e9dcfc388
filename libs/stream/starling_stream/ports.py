"""Pure core: what the fold needs from the world, in its own words."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from starling_common.headers import Headers
from starling_stream.processor import Inbound
from starling_stream.rows import TaskMeta


class Output(NamedTuple):
    """A record to be written. `received_at` in microseconds becomes its timestamp."""

    topic: str
    key: bytes
    value: bytes
    received_at: int
    headers: Headers


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


class StateView(Protocol):
    """One task's rows as of now. Rows are those of `rows`."""

    def rows(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The keys' rows, in their order; None where there is none."""

    def due(self, until_ms: int, limit: int) -> list[tuple[int, bytes]]:
        """The first (due, key) up to and at that instant, ascending."""

    def keys(self, after: bytes, limit: int) -> list[bytes]:
        """The first keys greater than `after` that have a state, ascending."""


class BackingTier(Protocol):
    """The tier behind the local store: makes a restore short. All calls may block; none is needed for correctness."""

    def floor(self, partition: int) -> int | None:
        """The changelog offset up to which the tier holds every state, exclusive; None when it holds nothing."""

    def rows(self, partition: int, keys: Sequence[bytes]) -> list[bytes | None]:
        """The rows of keys that are not local yet."""

    def committed(self, partition: int, changes: Mapping[bytes, Changed], position: int) -> None:
        """States were committed; `position` is the changelog offset after them. Must return at once."""


class NoBackingTier:
    """The changelog alone: a restore reads it from the local position, or from its start."""

    def floor(self, partition: int) -> int | None:  # noqa: ARG002
        """Holds nothing."""
        return None

    def rows(self, partition: int, keys: Sequence[bytes]) -> list[bytes | None]:  # noqa: ARG002
        """Holds nothing."""
        return [None] * len(keys)

    def committed(self, partition: int, changes: Mapping[bytes, Changed], position: int) -> None:
        """Keeps nothing."""


class RecordSource(Protocol):
    """The records of a topic's partition from its start up to an offset, exclusive."""

    def __call__(self, topic: str, partition: int, until: int) -> Iterable[Inbound]:
        """May block; raises what the client raises."""
