"""The arrival and the workspace of a refused record, where its fields are missing or invalid."""

from typing import Any

import pytest

from starling_common.records.dead_letters import SourceRecord, arrival, letter_correlation_id


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({"received_at": 5_123_456}, 5_123_456, id="its own"),
        pytest.param(None, 7_000_000, id="unreadable"),
        pytest.param({}, 7_000_000, id="a definition has none"),
        pytest.param({"received_at": -1}, 7_000_000, id="before 1970"),
        pytest.param({"received_at": 2**63 - 1}, 7_000_000, id="after 9999"),
    ],
)
def test_arrival(fields: dict[str, Any] | None, expected: int) -> None:
    assert arrival(7_000, fields) == expected


def test_arrival_without_a_timestamp_is_no_negative_time() -> None:
    assert arrival(-1) == 0


@pytest.mark.parametrize(
    ("key", "fields", "expected"),
    [
        (b"acme/ada", {"workspace": "other"}, "acme"),
        (b"no separator", {"workspace": "other"}, "other"),
        (b"/ada", {"workspace": "other"}, "other"),
        (b"\xff/ada", None, None),
        (None, {"workspace": ""}, None),
    ],
)
def test_workspace_is_that_of_the_key_if_it_has_one(key: bytes | None, fields: dict[str, Any] | None, expected: str | None) -> None:
    assert SourceRecord("t", 0, 1, key, b"", (), 0, fields).workspace == expected


def test_the_correlation_id_made_of_a_place_is_stable_and_differs_between_records() -> None:
    first, same, other = (letter_correlation_id(SourceRecord("t", 0, offset, None, b"", (), 0)) for offset in (1, 1, 2))
    assert first == same != other
