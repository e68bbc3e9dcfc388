"""Spark: the rate and the cost of an export from the lake to each sink, relative to reading and decoding the topic alone.

A topic is written into a lake by the code of the job `lake`. Each round exports the whole table by the job `exports` to a new
destination in each sink: Parquet, CSV, a Kafka topic, PostgreSQL, and an index of OpenSearch, whose table is smaller. Then it
runs the export again, which has nothing to do. In the same rounds Spark reads and decodes the topic and drops it. The servers
run on the same cores; their processor time is reported apart. Prints JSON, and a table with the goals.

    python benchmarks/spark_sinks.py [--only postgres,csv] [--small] [--write]
"""

import argparse
import cProfile
import json
import os
import pstats
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
import psycopg
from common import goals, shop
from common.bench import PARTITIONS, Stack, add_topics, keep, kept, remove_topics, stack
from common.segmenting import load
from common.spark_cpu import Meter
from pydantic import SecretStr
from pyspark.sql import DataFrame, SparkSession
from spark_lake import TABLE, settings
from spark_profiles import DAYS, Bench, Took, rates

from starling_common.kafka.topics import BEHAVIOUR
from starling_common.wire import Registry
from starling_local.opensearch import opensearch
from starling_local.postgres import PostgresServer, postgres
from starling_spark.jobs.exports.definition import ExportDefinition
from starling_spark.jobs.exports.job import ExportJob, Exports
from starling_spark.jobs.exports.sources import exported, source_of
from starling_spark.jobs.exports.store import RunRow, RunStore
from starling_spark.jobs.lake.batches import LakeWriter, Source
from starling_spark.kafka.sources import kafka_records
from starling_spark.lakehouse.iceberg import Lake, iceberg_config
from starling_spark.lakehouse.settings import LakeSettings
from starling_spark.session.spark import open_session
from starling_spark.sinks import kafka_topic
from starling_spark.sinks.catalogue import sink_of
from starling_spark.sinks.port import Run, Shape

SINKS: Final = ("parquet", "csv", "kafka", "postgres", "opensearch")
LEAST_RATES: Final = {"postgres": 20_000, "opensearch": 5_000}
"""The goals in rows/s."""
MOST_SHARE: Final = 0.3
"""The goal of Parquet: the processor time of a row relative to reading and decoding it."""
ORPHAN_HOURS: Final = 24.0
PROFILED_ROWS: Final = 20_000
SHOWN_FUNCTIONS: Final = 5
SECRET: Final = "benchmark"  # noqa: S105 - of a server that is deleted at the end


def never() -> bool:
    """No one stops the job."""
    return False


class Destinations:
    """The servers and the directory of the files. Each export has a place of its own name, which is deleted after it."""

    def __init__(self, made: Stack, directory: Path, database: PostgresServer | None, node: str) -> None:
        self._made = made
        self._directory = directory
        self._database = database
        self._node = node

    def definition(self, sink: str, name: str) -> ExportDefinition:
        """Return the export of the whole table."""
        uri = "" if self._database is None else self._database.uri()
        to = {"kafka": name, "postgres": uri, "opensearch": self._node}.get(sink, (self._directory / name).as_uri())
        return ExportDefinition(source=TABLE.name, sink=sink, to=to, table=name if sink in LEAST_RATES else None, max_rejects=0)

    def create(self, sink: str, name: str, message: str) -> None:
        """Create the place. `message`: that of a run without it, which proposes the statement."""
        statement = message.partition("create it with: ")[2]
        if sink == "kafka":
            add_topics(self._made.brokers, {name: PARTITIONS}, {"cleanup.policy": "compact"})
        elif sink == "postgres":
            self._execute(statement)
        elif sink == "opensearch":
            body = statement.removeprefix(f"PUT /{name} ")
            json_type = {"Content-Type": "application/json"}
            httpx.put(f"{self._node}/{name}", content=body, headers=json_type, timeout=60).raise_for_status()

    def remove(self, sink: str, name: str) -> None:
        """Delete the place."""
        if sink == "kafka":
            remove_topics(self._made.brokers, name.__eq__)
        elif sink == "postgres":
            self._execute(f"DROP TABLE {name}")
        elif sink == "opensearch":
            httpx.delete(f"{self._node}/{name}", timeout=60).raise_for_status()
        else:
            shutil.rmtree(self._directory / name)

    def _execute(self, statement: str) -> None:
        assert self._database is not None
        with psycopg.connect(self._database.uri(), password=SECRET) as connection:
            connection.execute(statement.encode())


class Ran(NamedTuple):
    """An export, and its repetition. `cpu`: seconds by part (`spark_cpu.PARTS`)."""

    seconds: float
    cpu: Mapping[str, float]
    again_seconds: float
    again_rows: int


class Rig:
    """Exports from one session. `lakes`: the lake of each sink, and its number of rows."""

    def __init__(
        self, spark: SparkSession, meter: Meter, lakes: Mapping[str, tuple[Lake, int]], places: Destinations, brokers: str
    ) -> None:
        self._spark = spark
        self._meter = meter
        self._lakes = lakes
        self._places = places
        self._brokers = brokers

    def rows(self, sink: str) -> int:
        """Return the number of rows that the sink gets."""
        return self._lakes[sink][1]

    def export(self, sink: str, number: int) -> Ran:
        """Export the table to a new place, and once more without changes."""
        lake, count = self._lakes[sink]
        name = f"export_{sink}_{number}"
        exports = self._exports(sink, name)
        job = ExportJob(self._spark, lake, exports)
        self._create(sink, name, job)
        try:
            before, began = self._meter.seconds(), time.monotonic()
            ended = job.run([name], never)[name]
            seconds, cpu = time.monotonic() - began, since(before, self._meter)
            if ended is None or (ended.state, ended.accepted) != ("done", count):
                raise RuntimeError(f"not {count} rows were exported: {ended}")
            began = time.monotonic()
            again = job.run([name], never)[name]
            return Ran(seconds, cpu, time.monotonic() - began, 0 if again is None else again.accepted)
        finally:
            self._places.remove(sink, name)

    def maintain(self) -> None:
        """Compact the tables with the runs, which the command does after each run."""
        for lake in {lake.namespace: lake for lake, _ in self._lakes.values()}.values():
            RunStore(self._spark, lake).maintain(ORPHAN_HOURS)

    def slowest(self, sink: str) -> list[str]:
        """Return the functions of the sink that take most time, each with its share, by a profile in this process."""
        lake, name = self._lakes[sink][0], f"profile_{sink}"
        exports, source = self._exports(sink, name), source_of(TABLE.name)
        self._create(sink, name, ExportJob(self._spark, lake, exports))
        rows = exported(lake.rows(TABLE.name), source, exports.definitions[name]).limit(PROFILED_ROWS).toArrow()
        profile = cProfile.Profile()
        try:
            profile.runcall(
                sink_of(exports.destination(name)).write, Shape(rows.schema, source.key), Run(name, 1), rows.to_batches(), 0
            )
        finally:
            self._places.remove(sink, name)
        return shares(pstats.Stats(profile))

    def _exports(self, sink: str, name: str) -> Exports:
        passwords = {name: SecretStr(SECRET)} if sink == "postgres" else {}
        return Exports({name: self._places.definition(sink, name)}, passwords, self._brokers)

    def _create(self, sink: str, name: str, job: ExportJob) -> None:
        failed: RunRow | None = job.run([name], never)[name] if sink in LEAST_RATES else None
        self._places.create(sink, name, "" if failed is None else failed.message or "")


def shares(stats: Any) -> list[str]:
    """Return the functions with the most time of their own, without that of those that they call."""
    found = sorted(((one[2], place) for place, one in stats.stats.items()), reverse=True)[:SHOWN_FUNCTIONS]
    return [
        f"{seconds / stats.total_tt:.0%} {function if file == '~' else f'{Path(file).name}:{line} {function}'}"
        for seconds, (file, line, function) in found
    ]


def since(before: Mapping[str, float], meter: Meter) -> dict[str, float]:
    """Return the processor time in seconds by part since an earlier reading of the meter."""
    return {part: value - before[part] for part, value in meter.seconds().items()}


def read(bench: Bench, meter: Meter) -> Took:
    """Read and decode the topic. `cpu_seconds`: of the JVM and its Python workers."""
    before = meter.seconds()
    took = bench.read(())
    spent = since(before, meter)
    return Took(took.seconds, spent["jvm"] + spent["python_workers"])


def fill(spark: SparkSession, made: Stack, found: LakeSettings, namespace: str) -> Lake:
    """Write the topic as it is now into a table of a new namespace, as the job `lake` does."""
    lake = Lake(spark, namespace)
    writer = LakeWriter(lake, (TABLE,), Source(Registry(made.registry_url), made.registry_url))
    writer.open()

    def write(batch: DataFrame, _batch: int) -> None:
        writer.write(batch)

    records = kafka_records(spark, made.brokers, [BEHAVIOUR], found.lake_batch_records, headers=False)
    checkpoint = f"{found.checkpoint_dir}/{namespace}"
    query = records.writeStream.option("checkpointLocation", checkpoint).trigger(availableNow=True).foreachBatch(write).start()
    query.awaitTermination()
    return lake


class Sizes(NamedTuple):
    """Rows of the table, and of that for OpenSearch."""

    events: int
    index_events: int
    rounds: int


def measure(made: Stack, directory: Path, sinks: Sequence[str], sizes: Sizes) -> dict[str, dict[str, Any]]:
    """Return the figures of each sink. Rounds interleaved, medians; the first of each warms up."""
    found = settings(made, directory)
    events = shop.behaviour(sizes.events, 1, shop.FIRST_MS, DAYS * shop.DAY_MS, (shop.WIDE_NAMES, shop.WIDE_WEIGHTS))
    with ExitStack() as closing:
        database = closing.enter_context(postgres(SECRET)) if "postgres" in sinks else None
        node = closing.enter_context(opensearch()) if "opensearch" in sinks else ""
        closing.callback(kafka_topic._producer.cache_clear)  # noqa: SLF001 - its threads would outlive the broker
        spark = open_session("benchmark", found, iceberg_config(found))
        closing.callback(spark.stop)
        load(made, BEHAVIOUR, islice(events, sizes.index_events))
        part = (fill(spark, made, found, "part"), sizes.index_events)
        load(made, BEHAVIOUR, events)
        whole = (fill(spark, made, found, "whole"), sizes.events)
        lakes = {sink: part if sink == "opensearch" else whole for sink in sinks}
        meter = closing.enter_context(Meter())
        rig = Rig(spark, meter, lakes, Destinations(made, directory / "files", database, node), made.brokers)
        bench, reads = Bench(made, spark, Path(found.checkpoint_dir), meter), list[Took]()
        exports: dict[str, list[Ran]] = {sink: [] for sink in sinks}
        for number in range(sizes.rounds + 1):
            reads.append(read(bench, meter))
            print(f"round {number}: read and decode: {reads[-1]}", flush=True)
            for sink in sinks:
                exports[sink].append(rig.export(sink, number))
                print(f"round {number}: {sink}: {exports[sink][-1]}", flush=True)
            rig.maintain()
        alone = rates(sizes.events, reads[1:])
        return {
            sink: {"rounds": sizes.rounds, "read_and_decode": alone}
            | sink_figures(rig.rows(sink), ran[1:], alone)
            | {"slowest": rig.slowest(sink)}
            for sink, ran in exports.items()
        }


def sink_figures(rows: int, rounds: Sequence[Ran], read: Mapping[str, float]) -> dict[str, Any]:
    """Of several rounds, the medians. `cpu_us_a_row` is that of the JVM and its Python workers, as of reading and decoding."""
    by_part = {part: statistics.median(ran.cpu[part] for ran in rounds) / rows * 1e6 for part in rounds[0].cpu}
    own = statistics.median(ran.cpu["jvm"] + ran.cpu["python_workers"] for ran in rounds) / rows * 1e6
    return {
        "rows": rows,
        "rows_per_second": round(rows / statistics.median(ran.seconds for ran in rounds)),
        "each_rows_per_second": [round(rows / ran.seconds) for ran in rounds],
        "cpu_us_a_row": round(own, 2),
        "to_read_and_decode_by_cpu_seconds": round(own / read["cpu_us_an_event"], 2),
        "cpu_us_a_row_by_part": {part: round(value, 2) for part, value in by_part.items()},
        "again": {
            "rows": max(ran.again_rows for ran in rounds),
            "seconds": round(statistics.median(ran.again_seconds for ran in rounds), 2),
        },
    }


def table_rows(found: Mapping[str, Mapping[str, Any]]) -> Iterator[goals.Row]:
    """Yield the rows of the table. The share of time of each function follows if a goal is missed."""
    read = next(iter(found.values()))["read_and_decode"]
    yield goals.Row("read and decode alone", f"{read['events_per_second']:>9,}/s  {read['cpu_us_an_event']} CPU-µs")
    for sink, one in found.items():
        least = LEAST_RATES.get(sink)
        rate, share = one["rows_per_second"], one["to_read_and_decode_by_cpu_seconds"]
        met = {"rate": None if least is None else rate >= least, "share": share <= MOST_SHARE if sink == "parquet" else None}
        figure = f"{rate:>9,}/s  {one['cpu_us_a_row']} CPU-µs"
        yield goals.Row(f"{sink}: {one['rows']:,} rows", figure, "" if least is None else f">= {least:,}/s", met["rate"])
        goal = f"<= {MOST_SHARE}" if met["share"] is not None else ""
        yield goals.Row("  of read and decode, by CPU seconds", str(share), goal, met["share"])
        again = one["again"]
        yield goals.Row("  again, without changes", f"{again['rows']} rows in {again['seconds']} s", "0 rows", again["rows"] == 0)
        if False in met.values():
            parts = ", ".join(f"{part.replace('_', ' ')} {value}" for part, value in one["cpu_us_a_row_by_part"].items())
            yield goals.Row("  CPU-µs a row by part", parts)
            yield from (goals.Row("  of the sink, in one process", text) for text in one["slowest"])


def chosen(text: str) -> tuple[str, ...]:
    """Return the named sinks. Raises: argparse.ArgumentTypeError."""
    names = text.split(",")
    if unknown := [name for name in names if name not in SINKS]:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is unknown: choose from {', '.join(SINKS)}")
    return tuple(sink for sink in SINKS if sink in names)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000, help="rows of the table")
    parser.add_argument("--index-events", type=int, default=200_000, help="rows of the table for OpenSearch")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", type=chosen, default=SINKS, help="sinks with commas; --write leaves the others as they were")
    parser.add_argument("--small", action="store_true", help="so light that it is over in minutes; not representative")
    parser.add_argument("--write", action="store_true", help="keep the result in benchmarks/results/spark_sinks.json")
    asked = parser.parse_args()
    sizes = Sizes(20_000, 5_000, 1) if asked.small else Sizes(asked.events, asked.index_events, asked.rounds)
    before = round(os.getloadavg()[1], 1)
    with tempfile.TemporaryDirectory(dir="/var/tmp") as scratch, stack(Path(scratch) / "stack") as made:
        found = measure(made, Path(scratch), asked.only, sizes)
    parts = {sink: {"load_average_5m_before": before} | one for sink, one in found.items()}
    result = {"benchmark": "spark_sinks", "cores": os.cpu_count(), **parts}
    print(json.dumps(result, indent=1))
    print(goals.as_text(table_rows(found)))
    if asked.write and not asked.small:
        keep("spark_sinks", kept("spark_sinks") | result)


if __name__ == "__main__":
    main()
