"""Adapter: the codecs of the topics that this service reads and writes, and the format of its states."""

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
from starling_segments import WRITTEN_FORMAT, UserState, state_encoder


@dataclass(frozen=True, slots=True)
class Formats:
    """`past`: the topics of a user's history; `membership`: for the feed and for `segments.membership-state`.

    `encode_user`: the states of users, which are stored in its format.
    """

    past: PastFormats
    backfilled: Codec
    answered: Codec
    tallied: Codec
    definition: Codec
    membership: RecordParts
    progress: Codec
    clock: Codec
    encode_user: Callable[[UserState], bytes]


def build_formats(codec: Callable[[str, str], Codec], state_format: int = WRITTEN_FORMAT) -> Formats:
    """Return the codecs of the segmenter. `codec`: (topic, name of a schema) -> its codec; its errors are passed on.

    `state_format`: in which states of users are written. Raises: ValueError if this version cannot write it.
    """
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
        encode_user=state_encoder(state_format),
    )
