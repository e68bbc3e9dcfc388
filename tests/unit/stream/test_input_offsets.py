"""The group's offsets against those of the states, case by case."""

import pytest

from starling_stream.model.meta import TaskMeta, decode_meta, encode_meta
from starling_stream.state.restore.input_offsets import ACCEPTED, InputRange, accepted_offsets, checkpoint_offsets, misfits

STATES = TaskMeta(9, 0, b"", {"a": 50})
OLDER = TaskMeta(9)
"""States of a release that stored no offsets."""

CASES = {
    "a first start": (TaskMeta(), InputRange(None, "", 0, 80), None, 0),
    "a first start after records have expired": (TaskMeta(), InputRange(None, "", 30, 80), None, 30),
    "the offsets of the states": (STATES, InputRange(50, "9", 0, 80), None, 50),
    "only transaction markers since the last unit": (STATES, InputRange(53, "9", 0, 80), None, 50),
    "markers, from a client without metadata": (STATES, InputRange(70, "", 0, 80), None, 50),
    "a reset forwards": (STATES, InputRange(60, "", 0, 80), "is 60, but the states contain only the records before offset 50", 50),
    "states of an earlier unit": (STATES, InputRange(60, "10", 0, 80), "is 60, but the states contain only", 50),
    "a reset backwards": (STATES, InputRange(40, "", 0, 80), "is 40, but the states contain the records before offset 50", 50),
    "a deleted group": (STATES, InputRange(None, "", 0, 80), "no committed offset, but the states contain the records", 50),
    "a deleted group, and expired records": (STATES, InputRange(None, "", 60, 80), "from offset 50 up to 60 expired", 60),
    "expired records": (STATES, InputRange(50, "9", 60, 80), "from offset 50 up to 60 expired", 60),
    "a topic created again": (STATES, InputRange(50, "9", 0, 20), "is 50, after the end of the topic, 20", 0),
    "an accepted loss": (STATES, InputRange(60, ACCEPTED, 60, 80), None, 60),
    "an accepted new topic": (STATES, InputRange(0, ACCEPTED, 0, 20), None, 0),
    "an accepted loss, and further expired records": (STATES, InputRange(60, ACCEPTED, 70, 80), "from offset 60 up to 70", 70),
    "an input that the states do not know": (TaskMeta(9, 0, b"", {"b": 1}), InputRange(None, "", 0, 80), None, 0),
    "states of an older release": (OLDER, InputRange(50, "", 0, 80), None, 50),
    "states of an older release, a deleted group": (OLDER, InputRange(None, "", 0, 80), "no committed offset, but there are", 80),
}


@pytest.mark.parametrize("name", CASES)
def test_a_misfit_is_found(name: str) -> None:
    meta, one, problem, _ = CASES[name]
    found = misfits(meta, {"a": one}, lambda _topic, first, until: first < 60 <= until <= 60)
    if problem is None:
        assert found == {}
    else:
        assert problem in found["a"]


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if "accepted" not in name])
def test_a_loss_is_accepted_at_an_offset_that_exists(name: str) -> None:
    meta, one, _, offset = CASES[name]
    assert accepted_offsets(meta, {"a": one}) == {"a": offset}
    accepted = InputRange(offset, ACCEPTED, one.start, one.end)
    assert misfits(meta, {"a": accepted}, lambda *_: True) == {}


def test_states_resume_exactly_where_they_end() -> None:
    assert checkpoint_offsets(STATES, {"a": InputRange(None, "", 50, 50)}) == {"a": 50}
    for start, end in ((51, 80), (0, 49)):
        with pytest.raises(ValueError, match=f"a: the states continue at offset 50, but the topic has {start} to {end}"):
            checkpoint_offsets(STATES, {"a": InputRange(None, "", start, end)})
    assert checkpoint_offsets(TaskMeta(), {"a": InputRange(None, "", 0, 80)}) == {}, "a partition without users"
    with pytest.raises(ValueError, match="an older release"):
        checkpoint_offsets(OLDER, {"a": InputRange(None, "", 0, 80)})


def test_the_row_of_an_older_release_is_read() -> None:
    assert decode_meta(bytes.fromhex("0193") + b"\x09\x00\xc4\x00") == OLDER
    assert decode_meta(encode_meta(STATES)) == STATES
