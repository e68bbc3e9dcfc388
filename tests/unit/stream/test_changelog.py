"""The specialised codec of the changelog against the general one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starling_common.wire import Codec
from starling_stream.model.changelog import decode_state_changed, encode_state_changed
from starling_stream.model.meta import TaskMeta, decode_meta, encode_meta
from starling_stream.model.rows import due_bytes, due_ms, gone_after, row_after, row_due, row_of, row_state, row_version

HEADER = b"\0\0\0\0\7"


def _codec() -> Codec:
    return Codec("StateChanged", 7, lambda _: "")


@given(st.integers(0, 2**62), st.binary(max_size=300))
def test_the_bytes_are_those_of_the_general_codec(version: int, state: bytes) -> None:
    encoded = encode_state_changed(HEADER, version, state)
    assert encoded == _codec().encode({"version": version, "state": state or None})
    assert decode_state_changed(encoded) == (version, state)


@given(st.lists(st.integers(0, 4), max_size=12).map(bytes) | st.binary(max_size=12))
def test_other_bytes_are_refused_and_never_partly_read(junk: bytes) -> None:
    try:
        version, state = decode_state_changed(HEADER + junk)
    except ValueError:
        return
    decoded = _codec().decode(HEADER + junk)
    assert (decoded["version"], decoded["state"] or b"") == (version, state)


@pytest.mark.parametrize("cut", range(5, 14))
def test_a_truncated_record_is_refused(cut: int) -> None:
    whole = encode_state_changed(HEADER, 300, b"state")
    with pytest.raises(ValueError, match="changelog"):
        decode_state_changed(whole[: min(cut, len(whole) - 1)])


@given(st.lists(st.integers(-(2**62), 2**62), min_size=2))
def test_due_bytes_sort_as_the_instants_do(instants: list[int]) -> None:
    assert sorted(instants) == [due_ms(data) for data in sorted(map(due_bytes, instants))]
    assert all(due_bytes(instant) < due_bytes(None) for instant in instants)


def test_a_row_without_an_instant_has_no_timer() -> None:
    assert row_due(row_of(3, due_bytes(None) + b"state")) is None
    assert row_due(row_of(3, b"")) is None
    assert (row_version(row_of(3, b"")), row_state(row_of(3, b""))) == (3, b"")


@given(st.integers(1, 2**60), st.none() | st.integers(-(2**60), 2**60), st.binary(min_size=1, max_size=40))
def test_a_changed_row_has_the_next_version_and_an_unchanged_one_is_none(version: int, due: int | None, payload: bytes) -> None:
    before = row_of(version, due_bytes(due) + payload)
    assert row_after(None, due, payload) == row_of(1, due_bytes(due) + payload)
    assert row_after(before, due, payload) is None
    for other_due, other in (
        (due, payload + b"x"),
        (due, payload[1:]),
        (due, payload[:-1] + bytes([payload[-1] ^ 1])),
        (7, payload),
    ):
        if (other_due, other) != (due, payload):
            assert row_after(before, other_due, other) == row_of(version + 1, due_bytes(other_due) + other)
    assert gone_after(before) == row_of(version + 1, b"")
    assert gone_after(gone_after(before)) is gone_after(None) is None
    assert row_after(gone_after(before), due, payload) == row_of(version + 2, due_bytes(due) + payload)


def test_a_tasks_row_of_a_newer_format_is_refused() -> None:
    assert decode_meta(encode_meta(TaskMeta(4, 5, b"p"))) == TaskMeta(4, 5, b"p")
    with pytest.raises(ValueError, match="newer version"):
        decode_meta(b"\x03rest")
