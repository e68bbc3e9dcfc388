"""Adapter: the bytes of the past -> what a fold takes of them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from starling_common.message_events import PROPERTIES, reported_at
from starling_common.topics import BEHAVIOUR, CLOCK, DELIVERY, LIST_MEMBERSHIP, PROFILE
from starling_common.values import record_key
from starling_common.wire import Codec, FieldReader
from starling_rules.events import (
    BEHAVIOUR_FIELDS,
    LISTED_FIELDS,
    PROFILE_FIELDS,
    REPORT_FIELDS,
    Behaviour,
    Listed,
    Profile,
    reported,
)
from starling_stream.model.processor import Decoded

_new = tuple.__new__


@dataclass(frozen=True, slots=True)
class PastFormats:
    """`behaviour`, `profile`, `report` and `listed` take the fields that `events` names."""

    behaviour: Callable[[bytes], tuple[Any, ...]]
    profile: Callable[[bytes], tuple[Any, ...]]
    listed: Callable[[bytes], tuple[Any, ...]]
    report: Callable[[bytes], tuple[Any, ...]]
    clock: Codec

    def decode(self, topic: str, value: bytes) -> Decoded:
        """A record of one of the topics of `history.PAST`. Raises: DecodeError."""
        if topic == BEHAVIOUR:
            taken = self.behaviour(value)
            # Hot: a named tuple's own constructor takes twice as long.
            return _new(Decoded, (Behaviour(taken), taken[0], taken[1], None))
        if topic == PROFILE:
            received_at, event_time, *rest = self.profile(value)
            return Decoded(Profile(*rest), received_at, event_time)
        if topic == LIST_MEMBERSHIP:
            received_at, workspace, user_id, *rest = self.listed(value)
            return Decoded(Listed(*rest), received_at, None, record_key(workspace, user_id))
        if topic == DELIVERY:
            received_at, event_time, correlation_id, *told = self.report(value)
            properties = dict(zip(PROPERTIES, told, strict=True))
            # Told by the wall clock, it must not move the time of events: under the event clock it counts when it is folded.
            return Decoded(reported(properties["outcome"], properties, correlation_id), reported_at(received_at, event_time), None)
        record = self.clock.decode(value)
        return Decoded(None, record["received_at"], record["instant"])


def build_past_formats(of: Callable[[str], Codec]) -> PastFormats:
    """`of`: the codec of a topic. Raises: whatever it raises."""
    return PastFormats(
        behaviour=FieldReader(of(BEHAVIOUR), BEHAVIOUR_FIELDS),
        profile=FieldReader(of(PROFILE), PROFILE_FIELDS),
        listed=FieldReader(of(LIST_MEMBERSHIP), LISTED_FIELDS),
        report=FieldReader(of(DELIVERY), REPORT_FIELDS),
        clock=of(CLOCK),
    )
