"""Pure core: whether the offsets of the consumer group fit the states of a task, and the offsets that cure a misfit."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from starling_stream.model.meta import TaskMeta

ACCEPTED = "accepted"
"""Metadata of an offset that an operator committed: a start takes it as it is."""


class InputRange(NamedTuple):
    """One input of a task: the group's committed offset with its metadata, and the first and the next offset of the topic.

    `committed` is None without a committed offset; the consumer then begins at `start`.
    """

    committed: int | None
    metadata: str
    start: int
    end: int


def misfits(meta: TaskMeta, inputs: Mapping[str, InputRange], has_records: Callable[[str, int, int], bool]) -> dict[str, str]:
    """Return topic -> why a start at the group's offset would skip records or fold some a second time; empty if it would not.

    `has_records` returns whether a topic has records from an offset to another, exclusive.
    """
    found = {}
    is_unknown = meta.units > 0 and not meta.offsets and all(one.committed is None for one in inputs.values())
    for topic, one in inputs.items():
        why = "the group has no committed offset, but there are states" if is_unknown else _misfit(meta, topic, one, has_records)
        if why is not None:
            found[topic] = why
    return found


def _misfit(meta: TaskMeta, topic: str, one: InputRange, has_records: Callable[[str, int, int], bool]) -> str | None:
    read_from = one.start if one.committed is None else one.committed
    folded = meta.offsets.get(topic, read_from)
    missing_from = folded if one.committed is None else read_from
    what = "the group has no committed offset" if one.committed is None else f"the committed offset is {read_from}"
    why = None
    if read_from > one.end:
        why = f"{what}, after the end of the topic, {one.end}: the topic was truncated or created again"
    elif missing_from < one.start:
        why = f"the records from offset {missing_from} up to {one.start} expired before they were processed"
    elif one.metadata == ACCEPTED:
        why = None
    elif read_from < folded:
        why = f"{what}, but the states contain the records before offset {folded}"
    # Between units a task commits offsets that move over transaction markers only; their metadata is the last unit.
    elif read_from > folded and one.metadata != str(meta.units) and has_records(topic, folded, read_from):
        why = f"{what}, but the states contain only the records before offset {folded}"
    return why


def checkpoint_offsets(meta: TaskMeta, inputs: Mapping[str, InputRange]) -> dict[str, int]:
    """Return the offsets at which the states continue exactly; none for a task that has never processed a record.

    Raises: ValueError for an input that no longer has them, and for states without offsets.
    """
    if not meta.offsets and meta.units > 0:
        raise ValueError("the states contain no offsets, because an older release wrote them")
    for topic, offset in meta.offsets.items():
        start, end = inputs[topic].start, inputs[topic].end
        if not start <= offset <= end:
            raise ValueError(f"{topic}: the states continue at offset {offset}, but the topic has {start} to {end}")
    return dict(meta.offsets)


def accepted_offsets(meta: TaskMeta, inputs: Mapping[str, InputRange]) -> dict[str, int]:
    """Return the offsets at which a task continues without the records that are lost, and without a record that was folded before.

    An input whose offset lies in the topic continues there, an expired one at the first record, and one after the end of a topic
    that was created again at its first record too. States of unknown offsets continue at the end.
    """
    is_unknown = meta.units > 0 and not meta.offsets and all(one.committed is None for one in inputs.values())
    found = {}
    for topic, one in inputs.items():
        wanted = meta.offsets.get(topic, one.committed)
        if wanted is None and is_unknown:
            found[topic] = one.end
        else:
            found[topic] = wanted if wanted is not None and one.start <= wanted <= one.end else one.start
    return found
