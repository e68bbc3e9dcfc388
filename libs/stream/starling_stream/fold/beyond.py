"""Pure core: the records of a task that were processed before earlier ones of their topic, as those of several sources are."""

from collections.abc import Mapping, Sequence
from typing import Self

from starling_stream.model.meta import TaskMeta
from starling_stream.model.processor import Inbound


class Beyond:
    """The processed records after the first waiting one of each topic. Immutable.

    `offsets`: topic -> their offsets, for topics that have some. `positions`: topic -> the next offset to commit, for those topics
    and for those that had some before the last step.
    """

    def __init__(self, offsets: Mapping[str, set[int]] | None = None, positions: Mapping[str, int] | None = None) -> None:
        self.offsets: Mapping[str, set[int]] = offsets or {}
        self.positions: Mapping[str, int] = positions or {}

    @classmethod
    def stored(cls, meta: TaskMeta, offsets: Mapping[str, int]) -> Self:
        """Return what a task's row contains, for the topics that are read from the offsets of that row."""
        found: dict[str, set[int]] = {}
        for topic, ranges in meta.beyond.items():
            if offsets.get(topic) == meta.offsets.get(topic):
                pairs = zip(ranges[::2], ranges[1::2], strict=True)
                found[topic] = {offset for first, end in pairs for offset in range(first, end)}
        return cls(found)

    def after(self, records: Sequence[Inbound], waiting: Mapping[str, int | None], ends: Mapping[str, int]) -> "Beyond":
        """Return the value after these records were processed too.

        `waiting`: the first waiting offset of each topic. `ends`: for each topic an offset after those of the records.
        """
        overtaken = [topic for topic, first in waiting.items() if first is not None and first < ends.get(topic, 0)]
        apart = {*self.offsets, *overtaken}
        if not apart:
            return _NOTHING
        processed = {topic: set(self.offsets.get(topic, ())) for topic in apart}
        for record in records:
            if record.topic in apart:
                processed[record.topic].add(record.offset)
        offsets: dict[str, set[int]] = {}
        positions: dict[str, int] = {}
        for topic, found in processed.items():
            if not found:
                continue
            first, end = waiting[topic], max(found) + 1
            positions[topic] = end if first is None else min(first, end)
            later = {offset for offset in found if offset > positions[topic]}
            if later:
                offsets[topic] = later
        return Beyond(offsets, positions)

    def ranges(self) -> dict[str, list[int]]:
        """Return topic -> the first offset of a range, the one after its last, and so on."""
        return {topic: _ranges(offsets) for topic, offsets in self.offsets.items()}


_NOTHING = Beyond()


def _ranges(offsets: set[int]) -> list[int]:
    found: list[int] = []
    for offset in sorted(offsets):
        if found and found[-1] == offset:
            found[-1] = offset + 1
        else:
            found += [offset, offset + 1]
    return found
