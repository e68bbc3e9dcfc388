"""Times in and out."""

import pytest

from starling_common.time.instants import format_instant, parse_instant, record_timestamp_ms


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        pytest.param("1970-01-01T00:00:00Z", 0, id="the epoch"),
        pytest.param("1998-06-30", 899_164_800_000, id="a bare date is midnight UTC"),
        pytest.param("2026-01-31T09:00:00.123456+09:00", 1_769_817_600_123, id="offset, microseconds cut"),
        pytest.param("1969-12-31T23:59:59.999Z", -1, id="before the epoch"),
    ],
)
def test_iso_times_are_epoch_milliseconds(text: str, ms: int) -> None:
    assert parse_instant(text) == ms
    assert parse_instant(format_instant(ms)) == ms


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01", "20:00"])
def test_an_invalid_instant_states_the_expected_format(text: str) -> None:
    with pytest.raises(ValueError, match="ISO 8601"):
        parse_instant(text)


@pytest.mark.parametrize(("received_at", "ms"), [(5_999, 5), (0, 0), (-1, 9), (10_000_001, 9), (2**63 - 1, 9), (-(2**63), 9)])
def test_the_timestamp_of_a_record_is_its_arrival_or_the_present(received_at: int, ms: int) -> None:
    assert record_timestamp_ms(received_at, 9) == ms
