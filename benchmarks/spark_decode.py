"""The lake: what an event costs if the JVM decodes it (`from_avro`) instead of the Python codec, and which broken values differ.

Both decoders read the same files of records with the wire header, without a broker, and write the same rows into tables of a lake
in a directory, by both ways of the job. `files`: the workers write the files; columns from the JVM reach them by Arrow. `rows`: the
way of an object store, where Iceberg's writer is on the JVM. The codec's rules for refusals are checks on columns of Spark there.
The figures are processor times of the JVM and its Python workers, medians of rounds in turn.
Run: python benchmarks/spark_decode.py [--small] [--write]
"""

# ruff: noqa: SLF001 - the rejected decoder uses parts of the lake's code

import argparse
import json
import os
import statistics
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple
from unittest import mock

import msgspec
import psutil
import pyarrow as pa
import pyarrow.compute as pc
from common import shop
from common.bench import keep
from pyarrow import parquet
from pyspark.sql import Column, DataFrame, SparkSession, functions
from pyspark.sql.avro.functions import from_avro

from starling_common.headers import record_headers
from starling_common.kafka.topics import BEHAVIOUR
from starling_common.settings import Http, Kafka, SchemaRegistry
from starling_common.wire import Codec, schema_text
from starling_local.runtime import runtime_jars
from starling_spark.jobs.lake import transform
from starling_spark.jobs.lake.by_files import _target, by_files
from starling_spark.jobs.lake.by_rows import by_rows
from starling_spark.jobs.lake.transform import columns, reading
from starling_spark.kafka.codec import TopicSchema, Wire, collect_rarely
from starling_spark.kafka.columns import _FIRST, _LAST, columns_of
from starling_spark.kafka.decoding import Reading, decoded
from starling_spark.kafka.sources import RECORDS
from starling_spark.lakehouse import data_files
from starling_spark.lakehouse.data_files import Plan, Target, TaskResult
from starling_spark.lakehouse.iceberg import Lake, iceberg_config
from starling_spark.lakehouse.schema.opened import Opened
from starling_spark.lakehouse.schema.tables import QUARANTINE, QUARANTINE_COLUMNS, TABLES
from starling_spark.lakehouse.settings import LakeSettings
from starling_spark.session.spark import open_session

GOAL: Final = 0.8
"""The processor time of the whole lake job with the JVM's decoding, relative to the Python codec's, from which it is worth it."""
PARTITIONS: Final = 4
SCHEMA_ID: Final = 1
SCHEMA: Final = schema_text("BehaviourEvent")
TABLE: Final = next(table for table in TABLES if BEHAVIOUR in table.topics)
WIRE: Final = Wire("http://127.0.0.1:1", (TopicSchema(BEHAVIOUR, "BehaviourEvent", SCHEMA_ID, SCHEMA),))
CODEC: Final = Codec("BehaviourEvent", SCHEMA_ID, lambda _: SCHEMA)
FIELDS: Final = columns_of(SCHEMA)
MARK: Final = os.urandom(8)
"""Bytes after each value and a field at the end of both schemas, so that a value with more or fewer bytes than a record differs."""
_MARKED: Final = "mark"


def write_records(directory: Path, events: int) -> None:
    """Events as values of Kafka, in one Parquet file for each partition."""
    directory.mkdir()
    made = [(key, CODEC.encode(record)) for key, record in shop.behaviour(events, 1, shop.FIRST_MS, 90 * shop.DAY_MS)]
    for number in range(PARTITIONS):
        own = made[number::PARTITIONS]
        size = len(own)
        records = {
            "topic": pa.array([BEHAVIOUR] * size),
            "partition": pa.array([number] * size, pa.int32()),
            "offset": pa.array(range(size), pa.int64()),
            "timestamp_ms": pa.array([shop.FIRST_MS] * size, pa.int64()),
            "key": pa.array([key for key, _ in own], pa.binary()),
            "value": pa.array([value for _, value in own], pa.binary()),
        }
        parquet.write_table(pa.table(records), directory / f"{number}.parquet", compression="none")


def on_jvm(records: DataFrame, *, checked: bool = True) -> DataFrame:
    """The records with `record` and `is_good`. `checked`: by the rules of the codec, else if its first field is not null."""
    schema = marked(SCHEMA) if checked else SCHEMA
    body = functions.expr("substring(value, 6)")
    value = functions.concat(body, functions.lit(MARK)) if checked else body
    is_ours = functions.expr("substring(value, 1, 5)") == functions.lit(CODEC.header)
    found = from_avro(value, schema, {"mode": "PERMISSIVE", "avroSchema": schema})
    made = records.withColumn("record", functions.when(is_ours, found))
    is_good = functions.col("record.received_at").isNotNull()
    for check in checks() if checked else ():
        is_good = is_good & check
    return made.withColumn("is_good", functions.coalesce(is_good, functions.lit(False)))


def marked(schema: str) -> str:
    """The schema with the mark as its last field."""
    found = json.loads(schema)
    found["fields"].append({"name": _MARKED, "type": {"type": "fixed", "name": "Mark", "size": len(MARK)}})
    return json.dumps(found)


def checks() -> Iterator[Column]:
    """What the codec refuses and `from_avro` accepts: bytes left over, instants out of range, bytes that are no text."""
    yield functions.col(f"record.{_MARKED}") == functions.lit(MARK)
    for field in FIELDS.fields:
        own = functions.col(f"record.{field.name}")
        if field.dataType.typeName() == "timestamp":
            yield own.isNull() | functions.unix_micros(own).between(_FIRST, _LAST)
        if field.dataType.typeName() == "string":
            yield own.isNull() | functions.is_valid_utf8(own)


def write_columns(records: DataFrame, plan: Plan) -> TaskResult:
    """As `data_files.write_files`, from decoded columns. The records have to be good."""
    own = [functions.col(f"record.{name}").alias(f"r_{name}") for name in FIELDS.fieldNames()]
    fallback = functions.when(~functions.col("is_good"), functions.col("value")).alias("value")
    origin = ("topic", "partition", "offset", "timestamp_ms", "key")
    rows = (
        on_jvm(records)
        .select(*origin, fallback, "is_good", *own)
        .mapInArrow(partial(_write, plan.targets[BEHAVIOUR]), "result binary")
    )
    result = TaskResult([], [], [])
    for (text,) in rows.collect():
        one = msgspec.json.decode(bytes(text), type=TaskResult)
        result.files.extend(one.files)
        result.ends.extend(one.ends)
    return result


def _write(target: Target, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    collect_rarely()
    unwritten, schema = data_files._Unwritten(), target.layout.schema
    ends: dict[tuple[str, int], int] = {}
    for batch in batches:
        for topic, number, here in data_files._by_partition(batch):
            if here.column("is_good").false_count:
                raise ValueError("a record of the benchmark was not decoded")
            ends[topic, number] = max(ends.get((topic, number), 0), pc.max(here.column("offset")).as_py() + 1)
            made = data_files._origin(here) | {name: here.column(f"r_{name}") for name in FIELDS.fieldNames()}
            columns = [_as(made[field.name], field.type) for field in schema]
            buffered = unwritten.batches.setdefault(target.table, [])
            buffered.append(pa.RecordBatch.from_arrays(columns, schema=schema))
            unwritten.targets[target.table] = target
            if sum(one.nbytes for one in buffered) > data_files._FLUSH_BYTES:
                unwritten._flush(target.table)
    result = TaskResult(unwritten.flushed(), [(*place, end) for place, end in ends.items()], [])
    yield pa.RecordBatch.from_pydict({"result": pa.array([msgspec.json.encode(result)], pa.binary())})


def _as(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """The column with the names of Iceberg's elements and fields; no value is copied."""
    if pa.types.is_list(wanted):
        return pa.ListArray.from_arrays(column.offsets, _as(column.values, wanted.value_type), type=wanted)
    if pa.types.is_struct(wanted):
        parts = [_as(column.field(place), wanted.field(place).type) for place in range(wanted.num_fields)]
        return pa.StructArray.from_arrays(parts, fields=list(wanted))
    return column if column.type == wanted else column.cast(wanted)


class Bench:
    """A session, the files of records, and a new table for each round of the lake."""

    def __init__(self, spark: SparkSession, files: Path) -> None:
        self._spark = spark
        self._files = files
        self._tables = 0
        self._columns = columns(TABLE, WIRE)

    def records(self) -> DataFrame:
        """A task a core, as the job reads Kafka."""
        return self._spark.read.parquet(str(self._files)).coalesce(2)

    def with_headers(self) -> DataFrame:
        """All of `sources.RECORDS`. With nulls for headers Spark takes a time that is quadratic in the rows of a batch."""
        one = [
            functions.struct(functions.lit(key).alias("key"), functions.lit(value).alias("value"))
            for key, value in record_headers("benchmark", "benchmark")
        ]
        return self.records().withColumn("headers", functions.array(*one))

    def table(self) -> Lake:
        """A new table and its quarantine."""
        self._tables += 1
        lake = Lake(self._spark, f"round{self._tables}")
        lake.ensure(TABLE.name, self._columns, TABLE.partitioning, TABLE.sorted_by)
        lake.ensure(QUARANTINE, QUARANTINE_COLUMNS, ("hours(origin_timestamp)", "origin_topic"), ())
        return lake

    def files_in_python(self, lake: Lake) -> None:
        """The job's own code."""
        opened = Opened(WIRE, {TABLE.name: self._columns}, True)
        by_files(lake, (TABLE,), self.records(), opened, lambda _: self.with_headers())

    def files_on_jvm(self, lake: Lake) -> None:
        """The same rows, decoded on the JVM."""
        target = _target(lake, TABLE.name, TABLE.sorted_by, (TABLE.kind, *TABLE.sorted_by[:-1]))
        plan = Plan({BEHAVIOUR: reading(TABLE, WIRE, self._columns)}, {BEHAVIOUR: target}, {})
        result = write_columns(self.records(), plan)
        lake.append_files(TABLE.name, result.files, {(topic, number): end for topic, number, end in result.ends}, target.tip)

    def rows_in_python(self, lake: Lake) -> None:
        """The job's own code for an object store, into a directory."""
        by_rows(lake, (TABLE,), self.with_headers(), Opened(WIRE, {TABLE.name: self._columns}, False))

    def rows_on_jvm(self, lake: Lake) -> None:
        """The same with the other decoder."""
        with mock.patch.object(transform, "decoded", _as_decoded):
            self.rows_in_python(lake)

    def parts(self) -> Mapping[str, Callable[[Lake], None]]:
        """What is measured."""
        return {
            "files_in_python": self.files_in_python,
            "files_on_jvm": self.files_on_jvm,
            "rows_in_python": self.rows_in_python,
            "rows_on_jvm": self.rows_on_jvm,
        }

    def broken(self) -> dict[str, list[str]]:
        """Of values that the codec refuses, those that `from_avro` decodes: alone, and with the codec's checks."""
        values = list(broken_values().items())
        made = self._spark.createDataFrame([(name, value) for name, value in values], "name string, value binary")
        refused = Reading.plain(WIRE, BEHAVIOUR)
        whole = made.select(
            *[
                functions.col(one.name) if one.name == "value" else functions.lit(None).cast(one.dataType).alias(one.name)
                for one in RECORDS.fields
            ]
        )
        assert decoded(whole, refused).where("record IS NOT NULL").count() == 0
        return {
            how: sorted(row["name"] for row in on_jvm(made, checked=is_checked).where("is_good").select("name").collect())
            for how, is_checked in (("from_avro", False), ("from_avro_with_checks", True))
        }


def broken_values() -> dict[str, bytes]:
    """Name -> a value that the codec refuses."""
    record = next(shop.behaviour(1, 1, shop.FIRST_MS, shop.DAY_MS))[1]
    good = CODEC.encode(record)
    text = str(record["user_id"]).encode()
    nested = str(record["anonymous_ids"][0]).encode()
    return {
        "empty": b"",
        "no header": b"\x01" + good[1:],
        "one byte less": good[:-1],
        "half": good[: len(good) // 2],
        "one byte more": good + b"\x00",
        "no text": good.replace(text, b"\xff" * len(text), 1),
        "no text in an array": good.replace(nested, b"\xff" * len(nested), 1),
        "the year 10000": CODEC.encode({**record, "event_time": _LAST // 1000 + 1}),
    }


def _as_decoded(records: DataFrame, _reading: Reading) -> DataFrame:
    """As `decoding.decoded`, of good records."""
    fields = functions.struct(*[functions.col(f"record.{name}").alias(name) for name in FIELDS.fieldNames()])
    found = on_jvm(records)
    record = functions.when(functions.col("is_good"), fields).alias("record")
    refused = functions.when(
        ~functions.col("is_good"),
        functions.struct(functions.lit("").alias("code"), functions.lit("").alias("message"), functions.lit(0).alias("schema_id")),
    )
    return found.select(*RECORDS.fieldNames(), record, refused.alias("refused"))


def cpu_seconds() -> float:
    """User and system time so far of the JVM, its Python workers and those that have ended."""
    jvm = next(child for child in psutil.Process().children() if any("SparkSubmit" in word for word in child.cmdline()))
    times = [process.cpu_times() for process in (jvm, *jvm.children(recursive=True))]
    return float(sum(one.user + one.system + one.children_user + one.children_system for one in times))


class Measured(NamedTuple):
    """CPU seconds of each part and round, and the rows of the warm-up that are not in the tables of all parts."""

    took: Mapping[str, list[float]]
    different_rows: int


def measured(bench: Bench, rounds: int) -> Measured:
    """Rounds in turn; the first of each part warms up."""
    took: dict[str, list[float]] = {name: [] for name in bench.parts()}
    different = 0
    for number in range(rounds + 1):
        tables = {name: bench.table() for name in took}
        for name, part in bench.parts().items():
            before = cpu_seconds()
            part(tables[name])
            seconds = round(cpu_seconds() - before, 2)
            print(f"round {number}: {name} {seconds} CPU s", flush=True)
            took[name] += [seconds] if number else []
        if not number:
            first, *others = tables.values()
            different = sum(differences(first, other) for other in others)
    return Measured(took, different)


def differences(one: Lake, other: Lake) -> int:
    """Rows of the first partition that are in one of the two tables only."""
    rows, others = (lake.rows(TABLE.name).where("origin_partition = 0") for lake in (one, other))
    return rows.exceptAll(others).count() + others.exceptAll(rows).count()


def figures(took: Mapping[str, list[float]], events: int) -> dict[str, Any]:
    medians = {name: statistics.median(found) for name, found in took.items()}
    return {
        "cpu_us_an_event": {name: round(found * 1e6 / events, 1) for name, found in medians.items()},
        "cpu_seconds": took,
        **{
            f"{writer}_jvm_to_python": round(medians[f"{writer}_on_jvm"] / medians[f"{writer}_in_python"], 2)
            for writer in ("files", "rows")
        },
        "goal": GOAL,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--small", action="store_true", help="so light that it is over in minutes; not representative")
    parser.add_argument("--write", action="store_true", help="keep the result in benchmarks/results/spark_decode.json")
    asked = parser.parse_args()
    events, rounds = (20_000, 1) if asked.small else (asked.events, asked.rounds)
    with tempfile.TemporaryDirectory(dir="/var/tmp") as scratch:
        directory = Path(scratch)
        write_records(directory / "records", events)
        settings = LakeSettings(
            kafka=Kafka(brokers="127.0.0.1:1"),
            registry=SchemaRegistry(url=WIRE.registry_url),
            http=Http(port=1),
            instance_id="benchmark",
            spark_jars=os.pathsep.join(map(str, (*runtime_jars("spark"), *runtime_jars("iceberg")))),
            spark_master="local[2]",
            checkpoint_dir=str(directory / "checkpoints"),
            lake_warehouse=str(directory / "warehouse"),
        )
        spark = open_session("benchmark", settings, iceberg_config(settings))
        try:
            bench = Bench(spark, directory / "records")
            broken = bench.broken()
            found = measured(bench, rounds)
        finally:
            spark.stop()
    result = {
        "benchmark": "spark_decode",
        "cores": os.cpu_count(),
        "events": events,
        "load_average_5m": round(os.getloadavg()[1], 1),
        "broken_values_decoded": broken,
        "different_rows": found.different_rows,
        **figures(found.took, events),
    }
    print(json.dumps(result, indent=1))
    if asked.write and not asked.small:
        keep("spark_decode", result)


if __name__ == "__main__":
    main()
