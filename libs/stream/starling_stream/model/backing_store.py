"""Pure core: what stands behind the local stores, in its own words: where a row belongs there, and what may be asked of it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol
from zlib import crc32

from starling_stream.model.rows import NEVER, due_ms

SLOT_MS: Final = 60_000
"""Width of a slot of the due index: users are found again by the minute in which they are due."""

NEVER_SLOT: Final = 1 << 62
"""Beyond every slot: nothing is waiting."""


class BackingAway(Exception):
    """The tier did not answer; the same call may work later."""


class Facts(NamedTuple):
    """What must never change under the states of a stage; frozen when it first starts. `topics`: name -> the broker's id."""

    stage: str
    partitions: int
    buckets: int
    topics: Mapping[str, str]


class Place(NamedTuple):
    """Where the rows of one task are. `log` is the id of its changelog.

    A new `incarnation` begins empty; one is begun when the rows that are there cannot be trusted any more.
    """

    log: str
    partition: int
    incarnation: int


class Standing(NamedTuple):
    """What the tier holds of a partition.

    Every state of the changelog before `floor` is there at that version or a newer one; None: not all of them are.
    `meta` is the task's own row as of the floor. No user is due before `due_from_ms` but those whom the log after the floor names.
    """

    incarnation: int
    floor: int | None
    meta: bytes
    due_from_ms: int


class StateWrite(NamedTuple):
    """One key's row. `at`, a changelog offset, decides which of two writes stays: the one with the greater.

    `slot_before` is the slot that the index has for the key (None: none known), `slot` the one it is to have (None: none).
    """

    key: bytes
    row: bytes
    at: int
    slot_before: int | None
    slot: int | None


class Backing(Protocol):
    """The tier's rows. Every call may block for seconds and raises BackingAway; a write may be repeated as it is."""

    buckets: int

    def standing(self, log: str, partition: int) -> Standing | None:
        """Of the newest incarnation; None when none was begun."""

    def begin(self, place: Place) -> None:
        """Make this the newest incarnation, unless there is a newer one."""

    def write(self, place: Place, writes: Sequence[StateWrite]) -> None:
        """Rows, and their places in the due index."""

    def move_floor(self, place: Place, standing: Standing) -> None:
        """Only after all that lies before the floor is written."""

    def rows(self, place: Place, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """The rows of those that have one."""

    def scan(self, place: Place, bucket: int) -> Iterator[Sequence[tuple[bytes, bytes]]]:
        """Every (key, row) of a bucket, in pages."""

    def due(self, place: Place, bucket: int, slots: tuple[int, int]) -> Iterator[Sequence[bytes]]:
        """The keys that the index has in these slots, first and last, in pages; some may not be due there any more."""

    def freeze(self, facts: Facts) -> Facts:
        """Write down these facts if there are none yet for the stage; returns those that hold."""

    def close(self) -> None:
        """Let go of connections."""


def bucket_of(key: bytes, buckets: int) -> int:
    """Independent of the hash that chooses the Kafka partition; must never change."""
    return crc32(key) % buckets


def slot_of(due: bytes | None) -> int | None:
    """The slot of a row's due bytes."""
    if not due or due == NEVER:
        return None
    instant = due_ms(due)
    return None if instant is None else instant // SLOT_MS


def disagreements(frozen: Facts, found: Facts) -> list[str]:
    """What is not as it was frozen, and what to do; none when all is well. Topics that were not known then are no fault."""
    wrong = []
    if frozen.partitions != found.partitions:
        wrong.append(
            f"the topics have {found.partitions} partitions and the states were written with {frozen.partitions}: "
            "users would be looked for in the wrong place; deploy with the number that was there"
        )
    if frozen.buckets != found.buckets:
        wrong.append(f"STARLING_TIER_BUCKETS is {found.buckets} and the states were written with {frozen.buckets}: set it back")
    anew = sorted(topic for topic, known in frozen.topics.items() if found.topics.get(topic, known) != known)
    if anew:
        wrong.append(
            f"{', '.join(anew)} was deleted and created anew since the states were written: restore the topic; "
            f"or, if that was meant, run `starling state rebuild all --stage {found.stage}` and start again"
        )
    return wrong
