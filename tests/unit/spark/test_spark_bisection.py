"""The record at which a view or the writing of the lake's files raises is found, and all others are as in a run without it."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from pyspark.sql import types

from starling_common.failpoints.raising import Raising
from starling_spark.directories import LocalDirectory
from starling_spark.jobs.views.poison import FailedRecords, Spans, found_by_bisection
from starling_spark.kafka.codec import Refusal, Wire
from starling_spark.kafka.decoding import Reading
from starling_spark.lakehouse.data_files import Plan, Target, TaskResult, _Task, _Unwritten
from starling_spark.lakehouse.positions import Tip
from starling_spark.lakehouse.schema.layout import Layout
from starling_spark.lakehouse.stores import files
from starling_spark.lakehouse.stores.translation import DIRECTORY, FileStore

TOPIC = "events"
NUMBERS = st.dictionaries(st.integers(0, 3), st.tuples(st.integers(0, 20), st.integers(0, 12)), max_size=4)


class Frame:
    """Stands for a DataFrame of these records, whose evaluation may raise."""

    def __init__(self, spans: Spans, raises: Any = None) -> None:
        self.spans = spans
        self.write = SimpleNamespace(format=lambda _: SimpleNamespace(mode=lambda _: SimpleNamespace(save=self._save)))
        self._raises = raises

    def _save(self) -> None:
        if self._raises is not None:
            raise self._raises


@settings(max_examples=100, deadline=None)
@given(numbers=NUMBERS, data=st.data())
def test_exactly_the_records_at_which_a_view_raises_are_found(numbers: dict[int, tuple[int, int]], data: st.DataObject) -> None:
    spans = {(TOPIC, number): (first, first + count) for number, (first, count) in numbers.items()}
    records = [(number, offset) for (_, number), span in spans.items() for offset in range(*span)]
    poison = data.draw(st.sets(st.sampled_from(records))) if records else set()

    def rows(found: Any) -> Any:
        here = [(number, offset) for (_, number), span in found.spans.items() for offset in range(*span)]
        return Frame(found.spans, RecursionError("too deep") if poison.intersection(here) else None)

    found = list(found_by_bisection(spans, cast("Any", Frame), rows))
    assert sorted((number, offset) for _, number, offset, _ in found) == sorted(poison)
    assert {why.code for *_, why in found} <= {"poison"}


def test_a_broker_that_is_away_refuses_no_record() -> None:
    away = RuntimeError("the broker does not answer")
    with pytest.raises(RuntimeError, match="does not answer"):
        list(found_by_bisection({(TOPIC, 0): (0, 9)}, cast("Any", lambda spans: Frame(spans, away)), lambda found: found))


def test_the_records_that_a_view_leaves_out_are_remembered(tmp_path: Path) -> None:
    failed = FailedRecords(LocalDirectory(tmp_path))
    assert failed.places() == []
    failed.add([(TOPIC, 0, 7)])
    failed.add([(TOPIC, 1, 8)])
    assert FailedRecords(LocalDirectory(tmp_path)).places() == [(TOPIC, 0, 7), (TOPIC, 1, 8)]


_SCHEMA = pa.schema(
    [
        ("name", pa.string()), ("amount", pa.int32()), ("origin_topic", pa.string()), ("origin_partition", pa.int32()),
        ("origin_offset", pa.int64()), ("origin_timestamp", pa.timestamp("us", tz="UTC")), ("origin_key", pa.binary()),
    ]
)  # fmt: skip


def _task(directory: Path, armed: Raising | None, store: FileStore = DIRECTORY) -> _Task:
    fields = [types.StructField("name", types.StringType()), types.StructField("amount", types.IntegerType())]
    reading = Reading(Wire("", ()), TOPIC, types.StructType(fields))
    target = Target("t", Layout(directory.as_uri(), _SCHEMA, ()), Tip({}), ("name",), (), store)
    return _Task(Plan({TOPIC: reading}, {TOPIC: target}, {}), {TOPIC: _read}, _Unwritten(armed=armed))


def _read(value: bytes | None) -> tuple[str, int] | Refusal:
    name, _, amount = (value or b"").decode().partition(":")
    return Refusal("bad_framing", "it has no amount", -1) if not amount else (name, int(amount))


def _written(directory: Path, values: Sequence[bytes], armed: Raising | None = None) -> tuple[TaskResult, list[tuple[str, int]]]:
    result = _result(_task(directory, armed), values)
    rows = [row for file in result.files for row in parquet.read_table(file.path.removeprefix("file://")).to_pylist()]
    return result, sorted((row["name"], row["origin_offset"]) for row in rows)


def _result(task: _Task, values: Sequence[bytes]) -> TaskResult:
    columns = {
        "topic": [TOPIC] * len(values), "partition": pa.array([0] * len(values), pa.int32()), "offset": list(range(len(values))),
        "timestamp_ms": [5] * len(values), "key": [b"k"] * len(values), "value": list(values),
    }  # fmt: skip
    task.take(TOPIC, 0, pa.RecordBatch.from_pydict(columns))
    return task.result()


@pytest.mark.parametrize("armed", [None, Raising.of("raise_in_write:poison")])
def test_rows_that_cannot_be_written_are_refused_and_all_others_are_written_once(tmp_path: Path, armed: Raising | None) -> None:
    bad = b"poison:1" if armed else b"poison:%d" % (1 << 40)
    result, rows = _written(tmp_path, [b"a:1", bad, b"b:2", b"unreadable", b"c:3", bad, b"d:4"], armed)
    assert rows == [("a", 0), ("b", 2), ("c", 4), ("d", 6)]
    refused = {(one.why.code, offset) for one in result.refused for offset in one.offsets}
    assert refused == {("poison", 1), ("bad_framing", 3), ("poison", 5)}
    assert result.ends == [(TOPIC, 0, 7)]
    assert sum(file.rows for file in result.files) == 4


def test_a_full_disk_refuses_no_row(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="failpoint write"):
        _written(tmp_path, [b"a:1", b"poison:1"], Raising.of("raise_in_write:poison:world"))


@pytest.mark.parametrize("error", [OSError("away"), pa.ArrowInvalid("a path that the client refuses")])
def test_an_object_store_that_is_away_refuses_no_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    asked: list[str] = []

    def open_output_stream(key: str) -> Any:
        asked.append(key)
        raise error

    monkeypatch.setattr(files, "_client", lambda _: SimpleNamespace(open_output_stream=open_output_stream))
    task = _task(tmp_path, None, FileStore((("region", "r"),)))
    with pytest.raises(OSError, match=str(error)):
        _result(task, [b"a:1", b"b:2"])
    # One attempt: the rows were not divided.
    assert len(asked) == 1


def test_an_incomplete_file_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write_bytes(path: Path, _content: object) -> None:
        path.touch()
        raise OSError("no space left on device")

    monkeypatch.setattr(Path, "write_bytes", write_bytes)
    with pytest.raises(OSError, match="no space"):
        _written(tmp_path, [b"a:1"])
    assert list(tmp_path.rglob("*.parquet")) == []
