"""Events from the read model as input of segments, in order of arrival."""

from collections.abc import Sequence
from typing import Any

import pytest

from starling_api.ports import PastEvent
from starling_api.preview.past_reader import CassandraPasts

MINUTE_MS = 60_000


class Rows:
    """A database that gives the same rows for every user."""

    def __init__(self, *rows: dict[str, Any]) -> None:
        self.rows = rows
        self.asked: list[tuple[Any, ...]] = []

    def read_each(self, _statement: str, parameters: Sequence[tuple[Any, ...]]) -> list[list[dict[str, Any]]]:
        self.asked += parameters
        return [list(self.rows) for _ in parameters]


def row(kind: str, name: str, at_ms: int, received_ms: int, details: str = '{"properties":{},"context":{}}') -> dict[str, Any]:
    return {
        "kind": kind, "name": name, "event_time_ms": at_ms, "received_at_micros": received_ms * 1000, "event_id": f"{name}-{at_ms}",
        "details": details,
    }  # fmt: skip


def pasts(*rows: dict[str, Any]) -> Sequence[PastEvent]:
    ((events, cut),) = CassandraPasts(Rows(*rows), 8).pasts("acme", ["ada"], 0, inside=True)  # type: ignore[arg-type]
    assert not cut
    return events


def test_outcomes_are_ordered_by_the_time_of_their_report() -> None:
    found = pasts(
        row("delivery", "Message Delivered", 9 * MINUTE_MS, 1 * MINUTE_MS, '{"properties":{"attempt":3},"context":{}}'),
        row("track", "Page Viewed", 5 * MINUTE_MS, 5 * MINUTE_MS),
        row("track", "Order Completed", 1 * MINUTE_MS, 1 * MINUTE_MS),
    )
    assert [event.name for event in found] == ["Order Completed", "Page Viewed", "Message Delivered"]
    assert found[2] == PastEvent("Message Delivered", 9 * MINUTE_MS, {"attempt": 3}, {}, 9 * MINUTE_MS * 1000, is_outcome=True)
    assert not found[0].is_outcome


def test_a_retried_attempt_is_no_outcome() -> None:
    assert pasts(row("delivery", "Message Retrying", 9, 1)) == []
    found = pasts(row("track", "Message Retrying", 9, 1))  # a tracked event with the name of an outcome is an event
    assert [event.name for event in found] == ["Message Retrying"]


@pytest.mark.parametrize("details", ['{"properties":null,"context":{}}', '{"properties":{},"context":1.5}', "[]", "{"])
def test_an_event_whose_properties_are_no_object_is_no_past(details: str) -> None:
    found = pasts(row("track", "Broken", 1, 1, details), row("track", "Order Completed", 2, 2))
    assert [event.name for event in found] == ["Order Completed"]
