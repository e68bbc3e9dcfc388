"""The contract of every sink, as a suite. `SinkContract` drives the sink, and a `Destination` reads it as a consumer does."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

import pyarrow as pa

from starling_spark.sinks.port import VERSION, Run, Shape, Sink, Written

SHAPE = Shape(
    pa.schema(
        [
            ("workspace", pa.string()),
            ("user_id", pa.string()),
            ("score", pa.float64()),
            ("is_member", pa.bool_()),
            ("changed_at", pa.timestamp("us", tz="UTC")),
            ("traits", pa.string()),
            (VERSION, pa.int64()),
        ]
    ),
    ("workspace", "user_id"),
)
AT = datetime(2026, 2, 28, 23, 59, 59, 123_456, tzinfo=UTC)
TRAITS = '{"a": "x,\\"y\\"\\n\\\\", "ü": [1, null]}'


def row(user: str, version: int, score: float | None = 1.5, traits: str | None = TRAITS) -> tuple[Any, ...]:
    return ("acme", user, score, version % 2 == 1, AT, traits, version)


class Destination(Protocol):
    """A destination of a test's own."""

    sink: Sink

    def rows(self) -> list[tuple[Any, ...]]:
        """The rows as a consumer reads them: the highest version of each key, by key."""


def write(
    sink: Sink, number: int, *tasks: Sequence[tuple[Any, ...]], most_rejected: int = 10, complete: bool = True
) -> list[Written]:
    """One run: each task writes its rows, in two batches."""
    run, written = Run("members", number), list[Written]()
    sink.check(SHAPE)
    for rows in tasks:
        halves = (rows[: len(rows) // 2], rows[len(rows) // 2 :])
        batches = (batch(half) for half in halves if half)
        written.append(sink.write(SHAPE, run, batches, most_rejected))
    if complete:
        sink.complete(SHAPE, run, written)
    return written


def batch(rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = [pa.array(values, field.type) for values, field in zip(zip(*rows, strict=True), SHAPE.schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=SHAPE.schema)


class SinkContract:
    """Subclasses have the fixture `destination`."""

    def test_every_value_arrives_as_it_is(self, destination: Destination) -> None:
        rows = [row("ann", 1), row("bob", 2, None, None), row("zoë", 3, -0.0, "")]
        assert [one.accepted for one in write(destination.sink, 1, rows[:1], [], rows[1:])] == [1, 0, 2]
        assert destination.rows() == rows

    def test_a_repeated_run_changes_nothing(self, destination: Destination) -> None:
        rows = [row("ann", 1), row("bob", 2)]
        write(destination.sink, 1, rows)
        write(destination.sink, 1, rows)
        assert destination.rows() == rows

    def test_a_run_that_was_killed_is_repeated(self, destination: Destination) -> None:
        rows = [row("ann", 1), row("bob", 2)]
        write(destination.sink, 1, rows[:1], complete=False)
        write(destination.sink, 1, rows)
        assert destination.rows() == rows

    def test_a_newer_version_replaces_an_older_one_and_not_the_reverse(self, destination: Destination) -> None:
        write(destination.sink, 1, [row("ann", 5), row("bob", 5)])
        write(destination.sink, 2, [row("ann", 6, 2.0), row("bob", 4, 2.0)])
        write(destination.sink, 3, [row("ann", 3, 3.0), row("eve", 1)])
        assert destination.rows() == [row("ann", 6, 2.0), row("bob", 5), row("eve", 1)]

    def test_a_run_without_rows_is_complete(self, destination: Destination) -> None:
        write(destination.sink, 1, [])
        assert destination.rows() == []
