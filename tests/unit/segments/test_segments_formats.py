"""States written in the format before the newest one: an older release reads them, and a fold continues in either format."""

from __future__ import annotations

import struct
from typing import Any

import msgspec
import pytest

from starling_segments import FORMAT, FORMAT_BEFORE, WRITTEN_FORMAT, UserState, decode_state, encode_state, plain, state_encoder
from tests.unit.segments.stored import STATES, cases, go_on, read, state_of

CASES = cases()
_encode_before = state_encoder(FORMAT_BEFORE)


def _lengths_of_format_7(data: bytes) -> tuple[list[int], bytes]:
    """Read the accumulators of a state as a release of format 7 does: four bytes for each length."""
    assert data[0] == FORMAT_BEFORE == 7
    fields: list[Any] = msgspec.msgpack.decode(data[1:])
    ids, lengths, kept = fields[4]
    return list(struct.unpack(f"<{len(ids) // 8}I", lengths)), kept


@pytest.mark.parametrize("name", CASES)
def test_the_format_before_contains_the_same_state(name: str) -> None:
    state = state_of(CASES[name])
    before, newest = _encode_before(state), encode_state(state)
    lengths, kept = _lengths_of_format_7(before)
    assert sum(lengths) == len(kept)
    assert all(lengths)
    read_back = decode_state(before)
    assert plain(read_back) == plain(decode_state(newest))
    assert encode_state(read_back)[0] == FORMAT
    assert go_on(CASES[name], read_back) == go_on(CASES[name], decode_state(newest))


@pytest.mark.parametrize("name", ["side by side", "side by side, some long", "waiting", "sequence compared twice"])
def test_a_fold_that_changes_the_format_at_each_step_equals_one_that_does_not(name: str) -> None:
    case = CASES[name]
    alone, rolled = state_of(case), state_of(case)
    for number in range(6):
        rolled = decode_state(state_encoder((FORMAT_BEFORE, FORMAT)[number % 2])(rolled))
        assert go_on(case, rolled) == go_on(case, alone)
        assert plain(rolled) == plain(alone)
        alone = decode_state(encode_state(alone))


@pytest.mark.parametrize("name", read(STATES / f"format_{FORMAT_BEFORE}.json"))
def test_stored_bytes_of_the_format_before_are_written_unchanged(name: str) -> None:
    stored = read(STATES / f"format_{FORMAT_BEFORE}.json")[name]
    assert _encode_before(decode_state(stored)) == stored


def test_an_empty_state_has_both_formats() -> None:
    for number in (FORMAT_BEFORE, FORMAT):
        data = state_encoder(number)(UserState())
        assert data[0] == number
        assert plain(decode_state(data)) == plain(UserState())


@pytest.mark.parametrize("number", [FORMAT_BEFORE - 1, FORMAT + 1, 0])
def test_any_other_format_is_refused_with_those_that_can_be_written(number: int) -> None:
    with pytest.raises(ValueError, match=f"state format {number}: this version writes the formats {FORMAT_BEFORE} and {FORMAT}"):
        state_encoder(number)


def test_the_default_is_a_format_that_can_be_written() -> None:
    assert WRITTEN_FORMAT in (FORMAT_BEFORE, FORMAT)
