"""Records of Kafka -> the rows of views: DataFrame in, DataFrame out. No session, no broker, no database.

Spark computes windows and sums. The state has one row of sums for each key and window, as many as the view has rows. With a
watermark Spark deletes old rows, and drops and counts later events.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame, functions, types
from pyspark.sql.pandas.types import to_arrow_schema

from starling_spark.jobs.views.groups import Group
from starling_spark.jobs.views.json_fields import parsed
from starling_spark.jobs.views.view import NAME, TIME, View
from starling_spark.kafka.codec import Refusal, collect_rarely
from starling_spark.kafka.columns import checked_micros, unit_micros
from starling_spark.kafka.decoding import Reading, columns_of_values, peek, row_reader

TIMES = "times"
"""Name of the observation of each partition's stream time."""
_PLACE = [types.StructField("partition", types.IntegerType()), types.StructField("timestamp_ms", types.LongType())]


def names_of(views: Iterable[View]) -> frozenset[str]:
    """Return the names of the events that count in any of these views, none if all count in one."""
    own = [view.names for view in views]
    return frozenset(name for names in own for name in names) if all(own) else frozenset()


def reading_of(views: Iterable[View], reading: Reading) -> Reading:
    """Return the columns that these views read."""
    fields = {"workspace", TIME}
    for view in views:
        if view.columns is None:
            return reading
        fields.update([NAME] if view.names else [], view.columns, view.json)
    return reading.only(fields)


def events(records: DataFrame, views: Collection[View], reading: Reading) -> DataFrame:
    """Return the events of views, and rows with times alone.

    Shape: in: records of Kafka; out: `partition`, `timestamp_ms`, and the columns of the reading. Events of other names and
           unreadable records are left out. For those of a batch there is a row for each partition with their highest times,
           whose other columns are null, so that stream time and watermark are those of all events. `counted` removes it.
    """
    out = types.StructType([*_PLACE, *reading.fields.fields])
    return records.select("partition", "timestamp_ms", "value").mapInArrow(_chosen(names_of(views), reading, out), out)


def counted(found: DataFrame) -> DataFrame:
    """Return the events without the rows that have times alone."""
    return found.where("workspace IS NOT NULL")


class _Times:
    """The highest times of records that are left out, by partition."""

    def __init__(self) -> None:
        self._highest: dict[int, tuple[int, int | None]] = {}

    def add(self, partition: int, timestamp_ms: int, event_micros: int | None = None) -> None:
        """Take the times of a record; `event_micros` is None for an unreadable one."""
        highest_ms, highest_micros = self._highest.get(partition, (timestamp_ms, None))
        if event_micros is not None and (highest_micros is None or event_micros > highest_micros):
            with suppress(ValueError):  # an unreadable record
                highest_micros = checked_micros(event_micros)
        self._highest[partition] = (max(highest_ms, timestamp_ms), highest_micros)

    def rows(self, shape: pa.Schema) -> pa.RecordBatch:
        """Return a row for each partition."""
        columns: dict[str, list[Any]] = {name: [None] * len(self._highest) for name in shape.names}
        columns["partition"] = list(self._highest)
        columns["timestamp_ms"] = [ms for ms, _ in self._highest.values()]
        columns[TIME] = [micros for _, micros in self._highest.values()]
        return pa.RecordBatch.from_pydict(columns, shape)


def _chosen(
    names: frozenset[str], reading: Reading, out: types.StructType
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def chosen(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        collect_rarely()
        shape = to_arrow_schema(out)
        struct = pa.struct(list(shape)[len(_PLACE) :])
        read, codec = row_reader(reading), reading.wire.codec(reading.topic)
        look = peek(codec, (TIME, NAME)) if names else None
        unit = unit_micros(codec.schema, TIME) if names else 0
        fields = reading.fields.fieldNames()
        time_at, name_at = fields.index(TIME), fields.index(NAME) if names else -1
        for batch in batches:
            left, wanted = _Times(), []
            columns = [batch.column(index).to_pylist() for index in range(3)]
            for index, (partition, timestamp_ms, value) in enumerate(zip(*columns, strict=True)):
                # Hot: most events of a view of some names have another one, and are not decoded.
                found = None if look is None else look(value)
                if found is None or found[1] in names:
                    wanted.append(index)
                else:
                    left.add(partition, timestamp_ms, found[0] * unit)
            rows, records = columns_of_values(read, [columns[2][index] for index in wanted], struct)
            # A record of another writer's schema is decoded before its name is known.
            kept = [not isinstance(row, Refusal) and (not names or row[name_at] in names) for row in rows]
            for index, row, is_kept in zip(wanted, rows, kept, strict=True):
                if not is_kept:
                    left.add(columns[0][index], columns[1][index], None if isinstance(row, Refusal) else row[time_at])
            places = [batch.column(index).take(pa.array(wanted, pa.int64())) for index in range(2)]
            yield pa.RecordBatch.from_arrays([*places, *records.flatten()], schema=shape).filter(pa.array(kept, pa.bool_()))
            yield left.rows(shape)

    return chosen


def without(records: DataFrame, places: Sequence[tuple[str, int, int]]) -> DataFrame:
    """Return the records except those at these topics, partitions and offsets."""
    for topic, partition, offset in places:
        here = (functions.col("topic") == topic) & (functions.col("partition") == partition) & (functions.col("offset") == offset)
        records = records.where(~here)
    return records


def timed(found: DataFrame, time_ms: Column, partitions: int) -> DataFrame:
    """Return the records, with the highest time of each partition observed as `TIMES`: `p0`, `p1` … in epoch ms."""
    highest = [
        functions.max(functions.when(functions.col("partition") == number, time_ms)).alias(f"p{number}")
        for number in range(partitions)
    ]
    return found.observe(TIMES, *highest)


def _lines_of(view: View, json: Mapping[str, Column]) -> Column:
    """Return the lines of an event; null for one that the view does not count."""
    return functions.when(functions.col(NAME).isin(*view.names), view.lines(json)) if view.names else view.lines(json)


def types_of(view: View, found: DataFrame) -> tuple[str, ...]:
    """Return the types of the measures. Raises: ValueError if the lines are not those of a view."""
    events, of_view = parsed(found, [view])
    lines = events.select(view.lines(of_view[view.name]).alias("lines")).schema["lines"].dataType
    shape = lines.elementType if isinstance(lines, types.ArrayType) else None
    columns = {field.name: field.dataType for field in shape.fields} if isinstance(shape, types.StructType) else {}
    missing = [name for name in view.dimensions if not isinstance(columns.get(name), types.StringType)]
    missing += [name for name in view.measures if not isinstance(columns.get(name), types.DecimalType)]
    if missing:
        wanted = "dimensions as text and measures as decimals"
        raise ValueError(f"the lines of the view {view.name} lack {', '.join(missing)} ({wanted}): {lines.simpleString()}")
    return tuple(columns[measure].simpleString() for measure in view.measures)


class _Plan(NamedTuple):
    """How the rows of a group come about: the keys of its lines and the sums in the state, and the columns of a row."""

    keys: Sequence[str]
    sums: Sequence[str]
    view: Column
    place: Column
    row: Column


def lines(group: Group, found: DataFrame) -> DataFrame:
    """Return the lines of all views of a group. Shape: in `events`, out `workspace`, `event_time`, keys and sums."""
    events, of_view = parsed(counted(found), group.views.values())
    own = {number: _lines_of(view, of_view[view.name]) for number, view in group.views.items()}
    if group.is_together:
        all_lines = functions.concat(*[_numbered(group, number, column) for number, column in own.items()])
    else:
        [all_lines] = own.values()
    return events.select("workspace", TIME, functions.inline(all_lines))


def totals(group: Group, found: DataFrame, lateness: str | None = None) -> DataFrame:
    """Return the sums of each key and window; in a stream the changed ones.

    Shape: in `events`, out the rows to upsert: `workspace`, `window_start_ms`, `view` (its number in the group), `place`
           (dimensions as a JSON array), `row` (dimensions and sums as a JSON object).

    `lateness`: maximum lateness relative to the newest event, such as `7 days`; None: unlimited. With a limit, one event with a
    date far in the future makes all others too late, so there is no limit by default.
    """
    plan = _plan(group)
    marked = found if lateness is None else found.withWatermark(TIME, lateness)
    window = functions.window(TIME, f"{next(iter(group.views.values())).window_hours} hours").alias("window")
    grouped = lines(group, marked).groupBy(window, "workspace", *plan.keys)
    summed = grouped.agg(*[functions.sum(name).alias(name) for name in plan.sums])
    return summed.select(
        "workspace",
        functions.unix_millis("window.start").alias("window_start_ms"),
        plan.view.alias("view"),
        functions.to_json(plan.place).alias("place"),
        plan.row.alias("row"),
    )


def _plan(group: Group) -> _Plan:
    return _together(group) if group.is_together else _alone(group)


def _alone(group: Group) -> _Plan:
    [(number, view)] = group.views.items()
    dimensions = [functions.col(name) for name in view.dimensions]
    row = _row(view, dimensions, view.measures)
    return _Plan(view.dimensions, view.measures, functions.lit(number), functions.array(*dimensions), row)


def _sums(group: Group) -> list[str]:
    return [f"sum_{number}" for number in range(len(group.columns))]


def _numbered(group: Group, number: int, found: Column) -> Column:
    """Return the lines of the view with this number as lines of the group."""
    view = group.views[number]
    measures = dict(zip(group.slots[number], view.measures, strict=True))

    def line(one: Column) -> Column:
        place = functions.array(*[one[dimension] for dimension in view.dimensions]).alias("place")
        sums = [
            (one[measures[slot]] if slot in measures else functions.lit(None)).cast(kind).alias(name)
            for slot, (kind, name) in enumerate(zip(group.columns, _sums(group), strict=True))
        ]
        return functions.struct(functions.lit(number).alias("view"), place, *sums)

    return functions.coalesce(functions.transform(found, line), functions.array())


def _together(group: Group) -> _Plan:
    names = _sums(group)

    def row(number: int, view: View) -> Column:
        dimensions = [functions.col("place")[place] for place in range(len(view.dimensions))]
        sums = [names[slot] for slot in group.slots[number]]
        return functions.when(functions.col("view") == number, _row(view, dimensions, sums))

    # Spark leaves sums that no row has out of the state, whose schema then differs from that of the checkpoint.
    others = functions.to_json(functions.struct(*names))
    return _Plan(
        ("view", "place"),
        names,
        functions.col("view"),
        functions.col("place"),
        functions.coalesce(*[row(number, view) for number, view in group.views.items()], others),
    )


def _row(view: View, dimensions: Sequence[Column], sums: Sequence[str]) -> Column:
    """Return a row as JSON. `sums`: the columns of the measures."""
    named = [column.alias(name) for name, column in zip(view.dimensions, dimensions, strict=True)]
    # As text, because a float would round an exact sum; the API returns a number.
    texts = [functions.col(column).cast("string").alias(name) for name, column in zip(view.measures, sums, strict=True)]
    return functions.to_json(functions.struct(*named, *texts))
