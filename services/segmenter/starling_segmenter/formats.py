"""Adapter: the bytes that this service reads and writes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from starling_common.topics import (
    ACCOUNT_ANSWERS,
    ACCOUNT_TALLIES,
    BEHAVIOUR,
    CLOCK,
    LIST_MEMBERSHIP,
    MEMBERSHIP,
    PROFILE,
    PROGRESS,
    SEGMENT_DEFINITIONS,
    load_catalogue,
)  # fmt: skip
from starling_common.wire import Codec, FieldReader
from starling_segmenter.events import BEHAVIOUR_FIELDS, LISTED_FIELDS, PROFILE_FIELDS
from starling_segmenter.membership import Parts, membership_parts


@dataclass(frozen=True, slots=True)
class Formats:
    """`behaviour`, `profile` and `listed` take the fields that `events` names; the feed and its state share `membership`."""

    behaviour: Callable[[bytes], tuple[Any, ...]]
    profile: Callable[[bytes], tuple[Any, ...]]
    listed: Callable[[bytes], tuple[Any, ...]]
    answered: Codec
    tallied: Codec
    clock: Codec
    definition: Codec
    membership: Parts
    progress: Codec


def build_formats(codec: Callable[[str, str], Codec]) -> Formats:
    """`codec` finds the codec of a topic and a schema's name, such as `Registry.codec`. Raises: whatever it raises."""
    topics = load_catalogue().topics

    def of(topic: str) -> Codec:
        return codec(topic, topics[topic].schema)

    return Formats(
        behaviour=FieldReader(of(BEHAVIOUR), BEHAVIOUR_FIELDS),
        profile=FieldReader(of(PROFILE), PROFILE_FIELDS),
        listed=FieldReader(of(LIST_MEMBERSHIP), LISTED_FIELDS),
        answered=of(ACCOUNT_ANSWERS),
        tallied=of(ACCOUNT_TALLIES),
        clock=of(CLOCK),
        definition=of(SEGMENT_DEFINITIONS),
        membership=membership_parts(of(MEMBERSHIP)),
        progress=of(PROGRESS),
    )
