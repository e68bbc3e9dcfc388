"""Pure core: the port of the backing store behind the local stores, and the layout of its rows."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol
from zlib import crc32

from starling_common.failures import InstallationFailure
from starling_stream.model.rows import NEVER, due_ms

SLOT_MS: Final = 60_000
"""Width of a slot of the due index: due users are found by minute."""


class BackingStoreUnavailable(InstallationFailure):
    """The backing store did not respond; the same call may succeed later."""


class StageLayout(NamedTuple):
    """The values that must not change under the states of a stage, frozen at its first start. `topics`: name -> the broker's id."""

    stage: str
    partitions: int
    buckets: int
    topics: Mapping[str, str]


class PartitionCopy(NamedTuple):
    """The copy of one partition in the backing store. `log` is the id of the changelog topic.

    A new `incarnation` is empty. One is created when the rows of the last one cannot be trusted.
    """

    log: str
    partition: int
    incarnation: int


class Checkpoint(NamedTuple):
    """The extent to which the copy of a partition is complete.

    The copy contains every state of the changelog before `flushed_offset` at that version or a newer one; None: the copy is
    incomplete. `meta` is the task's own row as of the flushed offset. No user is due before `due_from_ms`, except users in the
    changelog after the flushed offset.
    """

    incarnation: int
    flushed_offset: int | None
    meta: bytes
    due_from_ms: int


class StateWrite(NamedTuple):
    """The row of one key. Of two writes the one with the greater `at`, a changelog offset, stays.

    `slot_before` is the slot of the key in the due index (None: no known one), `slot` its new slot (None: none).
    """

    key: bytes
    row: bytes
    at: int
    slot_before: int | None
    slot: int | None


class BackingStore(Protocol):
    """The rows of all stages. Every call may block for seconds and raises BackingStoreUnavailable; a write may be repeated."""

    buckets: int

    def checkpoint(self, log: str, partition: int) -> Checkpoint | None:
        """Return the checkpoint of the newest incarnation; None if there is no incarnation."""

    def begin(self, copy: PartitionCopy) -> None:
        """Create this incarnation; it is the newest one unless a greater number exists."""

    def write(self, copy: PartitionCopy, writes: Sequence[StateWrite]) -> None:
        """Write rows and their entries in the due index."""

    def save_checkpoint(self, copy: PartitionCopy, checkpoint: Checkpoint) -> None:
        """Advance the flushed offset. All rows before it must be written by then."""

    def rows(self, copy: PartitionCopy, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the rows by key; a key without a row is absent."""

    def scan(self, copy: PartitionCopy, bucket: int) -> Iterator[Sequence[tuple[bytes, bytes]]]:
        """Return every (key, row) of a bucket, in pages."""

    def due(self, copy: PartitionCopy, bucket: int, slots: tuple[int, int]) -> Iterator[Sequence[bytes]]:
        """Return the keys in these slots of the due index, first and last inclusive, in pages; a key may be due no longer."""

    def freeze(self, layout: StageLayout) -> StageLayout:
        """Store this layout unless the stage has one; return the stored layout."""

    def close(self) -> None:
        """Close the connections."""


def bucket_of(key: bytes, buckets: int) -> int:
    """Return the bucket of a key. It does not depend on the hash that selects the Kafka partition, and must never change."""
    return crc32(key) % buckets


def slot_of(due: bytes | None) -> int | None:
    """Return the slot of a row's due bytes; None if the row has no timer."""
    if not due or due == NEVER:
        return None
    instant = due_ms(due)
    return None if instant is None else instant // SLOT_MS


def layout_changes(frozen: StageLayout, found: StageLayout) -> list[str]:
    """Return what differs between the frozen and the present layout, each with its cure. A new topic is no difference."""
    wrong = []
    if frozen.partitions != found.partitions:
        wrong.append(
            f"the topics have {found.partitions} partitions and the states were written with {frozen.partitions}: "
            "users would be read from the wrong partition; deploy with the former number"
        )
    if frozen.buckets != found.buckets:
        wrong.append(
            f"STARLING_BACKING_STORE_BUCKETS is {found.buckets} and the states were written with {frozen.buckets}: set it back"
        )
    recreated = sorted(topic for topic, known in frozen.topics.items() if found.topics.get(topic, known) != known)
    if recreated:
        wrong.append(
            f"{', '.join(recreated)} was deleted and created again since the states were written: restore the topic; "
            f"or, if that was intended, run `starling state rebuild all --stage {found.stage}` and start again"
        )
    return wrong
