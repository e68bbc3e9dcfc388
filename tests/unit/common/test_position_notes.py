"""The metadata of the offsets that the job of computed traits commits."""

import pytest

from starling_common.kafka.position_notes import PositionNote, position_note


@pytest.mark.parametrize(
    "note", [PositionNote(7), PositionNote(7, 1_700_000_000_000), PositionNote(0, 5), PositionNote(7, 0, 3, 9)]
)
def test_a_note_is_read_as_it_was_written(note: PositionNote) -> None:
    assert position_note(str(note)) == note


def test_a_note_without_a_stream_time_is_that_of_earlier_releases() -> None:
    assert str(PositionNote(7)) == "7"


@pytest.mark.parametrize("metadata", [None, "", "x", "7 x", "7 8 9", "-1", "7  8"])
def test_other_metadata_are_no_note(metadata: str | None) -> None:
    assert position_note(metadata) == PositionNote()
