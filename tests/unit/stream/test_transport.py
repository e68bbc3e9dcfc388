"""What counts as the end of a partition: only what the broker has said lately."""

from types import SimpleNamespace

from faust.types import TP

from starling_stream.transport import End, _ends

QUIET, SILENT, NEW = TP("a", 0), TP("b", 0), TP("c", 0)


def test_an_end_that_the_broker_has_not_confirmed_lately_is_none() -> None:
    states = {
        QUIET: SimpleNamespace(has_valid_position=True, position=7, lso=7, timestamp=2_000),
        SILENT: SimpleNamespace(has_valid_position=True, position=9, lso=9, timestamp=900),
        NEW: SimpleNamespace(has_valid_position=False, lso=None, timestamp=None),
    }
    assignment = SimpleNamespace(tps=list(states), state_value=states.__getitem__)
    assert _ends(assignment, 1_000.0) == {QUIET: End(7, 7), SILENT: End(9, None), NEW: End(None, None)}
