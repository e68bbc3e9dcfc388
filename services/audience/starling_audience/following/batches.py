"""Pure core: one batch of a target: the newest status of each user in each segment, and how far the topics were read for it."""

from dataclasses import dataclass, field

from confluent_kafka import Message

from starling_audience.changes import Change, Key, fold
from starling_audience.positions import Partition
from starling_common.outcome import Refused
from starling_common.wire import Record


@dataclass
class Batch:
    """The records of one read. `positions`: the offset of the next record by partition. `records`: how many were read.

    `consents`: user -> the last change of consent. `replays`: requests. Both need the present state of the user, and have their
    partition number. `ended`: the partition numbers whose first sync is complete with this batch.
    """

    newest: dict[Key, Change] = field(default_factory=dict)
    consents: dict[str, tuple[Record, int]] = field(default_factory=dict)
    replays: list[tuple[Record, int]] = field(default_factory=list)
    unreadable: list[tuple[Message, Refused]] = field(default_factory=list)
    superseded: list[Change] = field(default_factory=list)
    positions: dict[Partition, int] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)
    records: int = 0

    @property
    def is_empty(self) -> bool:
        """Return whether there is nothing to send, look up or commit."""
        return not (self.positions or self.ended)

    def size(self) -> int:
        """Return the number of changes, known and to be looked up."""
        return len(self.newest) + len(self.consents) + len(self.replays)

    def add(self, change: Change) -> None:
        """Add a change that was read after those of the batch."""
        fold(self.newest, (change,))
