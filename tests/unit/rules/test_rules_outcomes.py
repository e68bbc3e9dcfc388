"""The outcome of a message is the same event in the segmenter, the backfill, the read model and a preview."""

import json
from typing import Any, Final

import pytest

from starling_common.kafka.topics import DELIVERY, load_catalogue
from starling_common.records.message_events import EVENT_NAMES
from starling_common.wire import Codec
from starling_projector.projection.destinations import Destination
from starling_projector.projection.rows import Position, rows_of
from starling_rules.events import Reported
from starling_rules.inputs import build_past_formats

REPORT: Final[dict[str, Any]] = {
    "received_at": 5_000_000, "workspace": "acme", "user_id": "ada", "event_id": "e", "delivery_id": "d", "channel": "webhook",
    "target_key": "crm", "outcome": "DELIVERED", "attempt": 2, "status_code": 204, "detail": None, "segment_key": "vip",
    "campaign": None,
    "event_time": 9_000, "correlation_id": "c",
}  # fmt: skip


def _unknown(schema_id: int) -> str:
    raise LookupError(schema_id)


CODECS: Final = {name: Codec(topic.schema, 1, _unknown) for name, topic in load_catalogue().topics.items()}
FORMATS: Final = build_past_formats(CODECS.__getitem__)


def reported(**more: Any) -> tuple[Any, int, int | None]:
    """Return the value, the order of arrival, and the instant to which stream time advances."""
    value, received_at, event_time_ms, key, _ = FORMATS.decode(DELIVERY, CODECS[DELIVERY].encode(REPORT | more))
    assert key is None
    return value, received_at, event_time_ms


@pytest.mark.parametrize("outcome", EVENT_NAMES)
def test_a_users_history_and_a_segment_see_the_same_event(outcome: str) -> None:
    value, _, _ = reported(outcome=outcome)
    event = value.at(7_000)
    (row,) = rows_of(DELIVERY, REPORT | {"outcome": outcome}, Position(0, 0)).value  # type: ignore[union-attr]
    (stored,) = row.columns
    assert (row.destination, stored[1], json.loads(stored[3])) == (
        Destination.USER_EVENT,
        event.name,
        {"properties": event.properties, "context": event.context},
    )
    assert (event.time_ms, event.message_id, event.anonymous_ids, event.correlation_id) == (7_000, None, [], "c")
    assert event.properties["status_code"] == 204


def test_its_properties_may_be_text() -> None:
    event = Reported("Message Delivered", '{"attempt": 3}', "c").at(1)
    assert event.properties == {"attempt": 3}


@pytest.mark.parametrize("outcome", ["RETRYING", "", "delivered", "LOST"])
def test_another_outcome_is_no_event_for_segments(outcome: str) -> None:
    assert reported(outcome=outcome)[0] is None


@pytest.mark.parametrize(
    ("received_at", "event_time", "arrived"),
    [
        (5_000_000, 9_000, 9_000_000),  # the time of the report, perhaps hours after the item
        (5_000_007, 4_000, 5_000_007),  # and never before that
    ],
)
def test_its_order_is_that_of_the_report_and_stream_time_does_not_advance(received_at: int, event_time: int, arrived: int) -> None:
    assert reported(received_at=received_at, event_time=event_time)[1:] == (arrived, None)
