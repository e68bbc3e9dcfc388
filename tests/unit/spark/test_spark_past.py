"""Where the history before a cut is: what the lake provides, what the topic, and what is lost."""

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path

import pytest

from starling_spark.directories import LocalDirectory
from starling_spark.jobs.profiles.query.past import Past, PastEvents, divided
from starling_spark.kafka.checkpoints import Checkpoint

CUT = {("events", 0): 50, ("events", 1): 40, ("clock", 0): 90}


class FakeLake:
    """A lake with a position, or one without the table."""

    def __init__(self, position: Mapping[tuple[str, int], int] | None) -> None:
        self._position = position

    def exists(self, _table: str) -> bool:
        return self._position is not None

    def position(self, _table: str) -> Mapping[tuple[str, int], int]:
        return self._position or {}

    def rows(self, table: str) -> str:
        return table


def events(left: Mapping[tuple[str, int], tuple[int, int]], position: Mapping[tuple[str, int], int] | None) -> PastEvents:
    return PastEvents("events", lambda: left, lambda: nullcontext(FakeLake(position)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("lake_ends", "left", "expected"),
    [
        ({}, {0: (0, 60), 1: (0, 60)}, Past({}, {("events", 0): (0, 50), ("events", 1): (0, 40)})),
        ({0: 30, 1: 99}, {0: (20, 60), 1: (20, 60)}, Past({0: 30, 1: 40}, {("events", 0): (30, 50)})),
        ({0: 30}, {0: (35, 60), 1: (60, 60)}, Past({0: 30}, {("events", 0): (35, 50)}, {0: (30, 35), 1: (0, 40)})),
    ],
    ids=["without a lake", "from the lake up to its position", "a gap"],
)
def test_the_lake_provides_what_it_has_and_the_topic_the_rest(
    lake_ends: Mapping[int, int], left: Mapping[int, tuple[int, int]], expected: Past
) -> None:
    spans = {("events", partition): span for partition, span in left.items()}
    assert divided("events", CUT, lake_ends, spans) == expected


def test_the_records_of_lake_and_topic_are_counted() -> None:
    assert Past({0: 30, 1: 40}, {("events", 0): (30, 50)}).records == 90


@pytest.mark.parametrize("is_there", [True, False])
def test_the_table_is_read_only_for_records_that_it_has(*, is_there: bool) -> None:
    left = {("events", 0): (0, 60), ("events", 1): (0, 60)}
    with events(left, {("events", 0): 30, ("other", 1): 30} if is_there else None).before(CUT) as (past, table):
        assert (past.lake_ends, table) == (({0: 30}, "behaviour_events") if is_there else ({}, None))


def test_the_first_offsets_of_a_query_are_those_of_its_source_in_kafka(tmp_path: Path) -> None:
    checkpoint = Checkpoint(LocalDirectory(tmp_path / "q"))
    assert checkpoint.first_offsets() == {}
    texts = {"0": '\0v1\n{"events":{"0":7,"1":0},"clock":{"0":3}}', "1": 'v1\n{"path":"file:/visits/part-0","batchId":0}'}
    for name, text in texts.items():
        source = checkpoint.directory / "sources" / name
        source.make()
        source.write("0", text)
    assert checkpoint.first_offsets() == {("events", 0): 7, ("events", 1): 0, ("clock", 0): 3}
