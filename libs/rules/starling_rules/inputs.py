"""Pure core: decodes the records of a user's history into the inputs of the fold."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from starling_common.kafka.topics import BEHAVIOUR, CLOCK, DELIVERY, LIST_MEMBERSHIP, PROFILE
from starling_common.records.message_events import PROPERTIES, reported_at
from starling_common.values import record_key
from starling_common.wire import Codec, FieldReader
from starling_rules.events import (
    BEHAVIOUR_FIELDS,
    CHAIN_FIELDS,
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
    """Decoders of the topics; `behaviour`, `profile`, `report` and `listed` return the fields that `events` names."""

    behaviour: Callable[[bytes], tuple[Any, ...]]
    profile: Callable[[bytes], tuple[Any, ...]]
    listed: Callable[[bytes], tuple[Any, ...]]
    report: Callable[[bytes], tuple[Any, ...]]
    clock: Codec

    def decode(self, topic: str, value: bytes) -> Decoded:
        """Decode a record of one of the topics of `history.PAST`. Raises: DecodeError."""
        if topic == BEHAVIOUR:
            return self.decode_behaviour(value)
        if topic == PROFILE:
            return self.decode_profile(value)
        if topic == LIST_MEMBERSHIP:
            return self.decode_listed(value)
        return self.decode_report(value) if topic == DELIVERY else self.decode_clock(value)

    def decode_behaviour(self, value: bytes) -> Decoded:
        """Return a `Behaviour`. Raises: DecodeError."""
        fields = self.behaviour(value)
        # Hot: a named tuple's own constructor takes twice as long.
        # Older releases wrote no order.
        order = fields[8]
        return _new(Decoded, (Behaviour(fields), order or fields[0], fields[1], None, fields[9] if order else None))

    def decode_profile(self, value: bytes) -> Decoded:
        """Return a `Profile`. Raises: DecodeError."""
        received_at, event_time, *rest, order, previous = self.profile(value)
        return Decoded(Profile(*rest), order or received_at, event_time, None, previous if order else None)

    def decode_listed(self, value: bytes) -> Decoded:
        """Return a `Listed` with the key of its user. Raises: DecodeError."""
        received_at, workspace, user_id, *rest = self.listed(value)
        return Decoded(Listed(*rest), received_at, None, record_key(workspace, user_id))

    def decode_report(self, value: bytes) -> Decoded:
        """Return a `Reported`, or None if segments have no event for the outcome. Raises: DecodeError."""
        received_at, event_time, correlation_id, *fields = self.report(value)
        properties = dict(zip(PROPERTIES, fields, strict=True))
        # A channel dates by the wall clock. Under the event clock the outcome must not advance stream time.
        return Decoded(reported(properties["outcome"], properties, correlation_id), reported_at(received_at, event_time), None)

    def decode_clock(self, value: bytes) -> Decoded:
        """Return the instant of a clock record as its event time. Raises: DecodeError."""
        record = self.clock.decode(value)
        return Decoded(None, record["received_at"], record["instant"])


def build_past_formats(of: Callable[[str], Codec]) -> PastFormats:
    """`of` returns the codec of a topic; its errors are passed on."""
    return PastFormats(
        behaviour=FieldReader(of(BEHAVIOUR), (*BEHAVIOUR_FIELDS, *CHAIN_FIELDS)),
        profile=FieldReader(of(PROFILE), (*PROFILE_FIELDS, *CHAIN_FIELDS)),
        listed=FieldReader(of(LIST_MEMBERSHIP), LISTED_FIELDS),
        report=FieldReader(of(DELIVERY), REPORT_FIELDS),
        clock=of(CLOCK),
    )
