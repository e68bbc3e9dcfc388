"""Adapter: the codecs of the topics that this service reads and writes."""

from collections.abc import Callable
from dataclasses import dataclass

from starling_common.kafka.topics import (
    ACCOUNT_ANSWERS,
    ACCOUNT_TALLIES,
    BACKFILL_STATES,
    MEMBERSHIP,
    PROGRESS,
    SEGMENT_CLOCK,
    SEGMENT_DEFINITIONS,
    load_catalogue,
)  # fmt: skip
from starling_common.wire import Codec
from starling_rules.inputs import PastFormats, build_past_formats
from starling_segmenter.records.membership import RecordParts, membership_parts


@dataclass(frozen=True, slots=True)
class Formats:
    """`past`: the topics of a user's history; `membership`: for the feed and for `segments.membership-state`."""

    past: PastFormats
    backfilled: Codec
    answered: Codec
    tallied: Codec
    definition: Codec
    membership: RecordParts
    progress: Codec
    clock: Codec


def build_formats(codec: Callable[[str, str], Codec]) -> Formats:
    """Return the codecs of the segmenter. `codec`: (topic, name of a schema) -> its codec; its errors are passed on."""
    topics = load_catalogue().topics

    def of(topic: str) -> Codec:
        return codec(topic, topics[topic].schema)

    return Formats(
        past=build_past_formats(of),
        backfilled=of(BACKFILL_STATES),
        answered=of(ACCOUNT_ANSWERS),
        tallied=of(ACCOUNT_TALLIES),
        definition=of(SEGMENT_DEFINITIONS),
        membership=membership_parts(of(MEMBERSHIP)),
        progress=of(PROGRESS),
        clock=of(SEGMENT_CLOCK),
    )
