"""Computed traits on Spark: how fast a history is worked off with 5, 50 and 200 definitions, and what a person's state takes.

Beside it, in the same run on the same cores, what Spark does when it only reads and decodes that topic into a sink that
drops everything. Each round is one micro-batch over the whole topic, from the first record to the last; a value counts
as published when the broker has acknowledged it. Run: python benchmarks/spark_profiles.py [--write]
"""

import argparse
import json
import os
import random
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
from common import goals, shop
from common.bench import PARTITIONS, Stack, keep, stack
from common.segmenting import load
from common.spark_cpu import Meter
from prometheus_client import CollectorRegistry
from pyspark.sql import SparkSession, functions

from starling_common.kafka.topics import AGGREGATES, BEHAVIOUR, CLOCK
from starling_common.settings import Clock, Http, Kafka, SchemaRegistry
from starling_common.telemetry.metrics import Metrics
from starling_common.wire import FieldReader, Registry
from starling_local.runtime import runtime_jars
from starling_spark.directories import LocalDirectory
from starling_spark.jobs.profiles.definitions.entries import first_entries
from starling_spark.jobs.profiles.definitions.in_force import Definition
from starling_spark.jobs.profiles.fold.matches import EVENT_FIELDS
from starling_spark.jobs.profiles.query.queries import Batch, Observers, QueryOptions, TraitQuery
from starling_spark.jobs.profiles.query.transform import Job, Topics
from starling_spark.kafka.codec import Wire, collect_rarely, topic_schemas
from starling_spark.kafka.sources import kafka_records
from starling_spark.session.query_metrics import QueryMetrics
from starling_spark.session.settings import SparkSettings
from starling_spark.session.spark import open_session

DEFINITIONS: Final = (5, 50, 200)
DAYS: Final = 90
MEASURES: Final[tuple[Any, ...]] = (
    "count", {"sum": "revenue"}, {"avg": "revenue"}, {"max": "revenue"}, {"distinct": "product_id"}, {"last": "category"},
    {"most_frequent": "category"}, {"percentile": "revenue", "q": 0.9}, {"days": True}, "last_time",
)  # fmt: skip
DEAD_LETTERS: Final = "profiles.dlq"


def documents(count: int) -> Iterator[dict[str, Any]]:
    """Traits of every measure over windows from a day to a lifetime.

    As with the segments of `shop.mixed`: four in ten concern one of the shop's own five events, the others one of 45 rare
    ones, and half want a certain product or category.
    """
    for number in range(count):
        dice = random.Random(number)
        found: dict[str, Any] = {"event": dice.choice(shop.NAMES) if dice.random() < 0.4 else dice.choice(shop.RARE_NAMES)}
        category, product = dice.choice(("shoes", "hats", "bags", "coats", "toys")), f"sku-{dice.randrange(500)}"
        wanted = dice.choice((("category", category), ("product_id", product), None, None))
        if wanted is not None:
            found["where"] = {"property": wanted[0], "op": "eq", "value": wanted[1]}
        within = dice.choice(("1d", "7d", "14d", "30d", "90d", "365d", None))
        found |= {} if within is None else {"within": within}
        if number % (len(MEASURES) + 1) == len(MEASURES):
            yield {"measure": {"ratio": {"of": found, "to": {"event": dice.choice(shop.NAMES)}}}}
        else:
            yield found | {"measure": MEASURES[number % (len(MEASURES) + 1)]}


class Took(NamedTuple):
    """A round. `seconds`: from planning to the last commit."""

    seconds: float
    cpu_seconds: float


class Bench:
    """One session and one topic full of events; each round reads all of it."""

    def __init__(self, made: Stack, spark: SparkSession, directory: Path, meter: Meter, tasks: int = 2) -> None:
        """`tasks`: with state."""
        self.spark = spark
        self._meter = meter
        self._tasks = tasks
        self._made = made
        self._directory = directory
        self.wire = event_wire(made)
        self._job = Job(Topics(BEHAVIOUR, CLOCK, AGGREGATES, DEAD_LETTERS), self.wire, Clock.EVENT)
        self._rounds = 0

    def cpu_seconds(self) -> float:
        """Return user and system time so far of the JVM and its Python workers."""
        spent = self._meter.seconds()
        return spent["jvm"] + spent["python_workers"]

    def read(self, fields: tuple[str, ...]) -> Took:
        """Read and decode every event (these fields; () for whole records) and drop it."""
        self._rounds += 1
        before = self.cpu_seconds()
        records = kafka_records(self.spark, self._made.brokers, [BEHAVIOUR]).select("value")
        counts = records.mapInArrow(decoder(self.wire, fields), "records long")
        query = (
            counts.writeStream.format("noop")
            .option("checkpointLocation", str(self._directory / f"read-{self._rounds}"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return Took(seconds_of(query.recentProgress), self.cpu_seconds() - before)

    def profiles(self, count: int) -> dict[str, Any]:
        """A round of the job itself with so many definitions."""
        self._rounds += 1
        definitions = tuple(
            Definition("default", f"t{number}", self._rounds, json.dumps(document), ())
            for number, document in enumerate(documents(count))
        )
        checkpoints = LocalDirectory(self._directory / "profiles")
        # All events are one micro-batch, so that rounds differ by their definitions alone.
        options = QueryOptions(self._made.brokers, PARTITIONS, checkpoints, self._tasks, 1.0, batch_records=1_000_000_000)
        batches: list[Batch] = []
        before = self.cpu_seconds()
        job = Job(self._job.topics, self.wire, Clock.EVENT, first_entries(definitions))
        observers = Observers(batches.append, QueryMetrics(Metrics(CollectorRegistry()), "benchmark"))
        query = TraitQuery(self.spark, job, options, options.checkpoints / f"round-{self._rounds}", observers)
        try:
            while query.poll() is None or not batches:
                time.sleep(0.1)
            [running] = self.spark.streams.active
            took = Took(seconds_of(running.recentProgress), self.cpu_seconds() - before)
        finally:
            query.stop(60)
        users = self._state(self._directory / "profiles" / query.name)
        return {"took": took, "published": batches[0].published.get(AGGREGATES, 0), **users}

    def _state(self, checkpoint: Path) -> dict[str, int]:
        """Of the state as the store has it: how many people, and the bytes of one."""
        kept = self.spark.read.format("statestore").option("path", str(checkpoint)).option("stateVarName", "users").load()
        sizes = kept.select(functions.length(functions.col("user_map_value.state")).alias("bytes"))
        row = sizes.agg(
            functions.count("*").alias("users"),
            functions.percentile_approx("bytes", 0.5).alias("p50"),
            functions.percentile_approx("bytes", 0.99).alias("p99"),
            functions.max("bytes").alias("most"),
        ).collect()[0]
        return {"users": row["users"], "bytes_p50": row["p50"], "bytes_p99": row["p99"], "bytes_max": row["most"]}


def event_wire(made: Stack) -> Wire:
    """What the topics of these benchmarks carry."""
    records = {BEHAVIOUR: "BehaviourEvent", CLOCK: "ClockAdvanced", AGGREGATES: "AggregateComputed", DEAD_LETTERS: "DeadLetter"}
    return topic_schemas(Registry(made.registry_url), made.registry_url, records.items())


def decoder(wire: Wire, fields: tuple[str, ...]) -> Any:
    def decode(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        collect_rarely()  # as the job does: what is compared is the work
        codec = wire.codec(BEHAVIOUR)
        read: Any = FieldReader(codec, fields) if fields else codec.decode
        for batch in batches:
            for value in batch.column(0).to_pylist():
                read(value)
            yield pa.RecordBatch.from_pydict({"records": pa.array([batch.num_rows], pa.int64())})

    return decode


def seconds_of(progress: Iterable[Any]) -> float:
    """Of the micro-batches that read anything, from planning to the last commit."""
    reports = [json.loads(one.json) for one in progress]
    return float(sum(one["durationMs"]["triggerExecution"] for one in reports if one["numInputRows"])) / 1000


def settings(made: Stack, directory: Path) -> SparkSettings:
    """Return the settings of the job, with defaults for all that can be changed."""
    return SparkSettings(
        kafka=Kafka(brokers=made.brokers),
        registry=SchemaRegistry(url=made.registry_url),
        http=Http(port=1),
        instance_id="benchmark",
        spark_jars=os.pathsep.join(str(jar) for jar in runtime_jars("spark")),
        checkpoint_dir=str(directory),
    )


def measure(bench: Bench, events: int, rounds: int) -> dict[str, Any]:
    """Rounds interleaved, medians; what comes before them warms the JVM and the workers up."""
    bench.read(EVENT_FIELDS)
    bench.profiles(DEFINITIONS[0])
    reads: dict[str, list[Took]] = {"whole_records": [], "fields_needed": []}
    jobs: dict[int, list[dict[str, Any]]] = {count: [] for count in DEFINITIONS}
    for at in range(rounds):
        for name, fields in (("whole_records", ()), ("fields_needed", EVENT_FIELDS)):
            reads[name].append(bench.read(fields))
            print(f"round {at}: read and decode {name}: {reads[name][-1]}", flush=True)
        for count in DEFINITIONS:
            jobs[count].append(bench.profiles(count))
            print(f"round {at}: {count} definitions: {jobs[count][-1]}", flush=True)
    decoding = {name: rates(events, found) for name, found in reads.items()}
    return {
        "read_and_decode": decoding,
        "definitions": {str(count): job_figures(events, found, decoding) for count, found in jobs.items()},
    }


def rates(events: int, rounds: list[Took]) -> dict[str, float]:
    """Of several rounds, the median."""
    return {
        "events_per_second": round(events / statistics.median(one.seconds for one in rounds)),
        "cpu_us_an_event": round(statistics.median(one.cpu_seconds for one in rounds) / events * 1e6, 2),
    }


def job_figures(events: int, found: list[dict[str, Any]], decoding: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    own = rates(events, [one["took"] for one in found])
    shares: dict[str, float] = {}
    for name, other in decoding.items():
        shares[f"rate_to_read_and_decode_{name}"] = round(own["events_per_second"] / other["events_per_second"], 2)
        shares[f"by_cpu_seconds_{name}"] = round(other["cpu_us_an_event"] / own["cpu_us_an_event"], 2)
    last = found[-1]
    state = {"people": last["users"], **{name: last[name] for name in ("bytes_p50", "bytes_p99", "bytes_max")}}
    return {**own, **shares, "values_told": last["published"], "state": state}  # vocabulary: told: field of the result file


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=2_000_000)
    parser.add_argument("--users", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--small", action="store_true", help="so light that it is over in minutes; not representative")
    parser.add_argument("--write", action="store_true", help="keep the result in benchmarks/results/spark_profiles.json")
    asked = parser.parse_args()
    if asked.small:
        asked.events, asked.users, asked.rounds, asked.write = 50_000, 2_000, 1, False
    shop.USERS = asked.users
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory, stack(Path(directory) / "stack") as made:
        span_ms = DAYS * shop.DAY_MS
        names = (shop.WIDE_NAMES, shop.WIDE_WEIGHTS)
        load(made, BEHAVIOUR, shop.behaviour(asked.events, 1, shop.FIRST_MS, span_ms, names))
        spark = open_session("benchmark", settings(made, Path(directory) / "checkpoints"), is_streaming=True)
        try:
            with Meter() as meter:
                found = measure(Bench(made, spark, Path(directory) / "checkpoints", meter), asked.events, asked.rounds)
        finally:
            spark.stop()
    few, many = (found["definitions"][str(count)] for count in (DEFINITIONS[0], DEFINITIONS[-1]))
    result = {
        "benchmark": "spark_profiles",
        "cores": 2,
        "events": asked.events,
        "users": asked.users,
        "rounds": asked.rounds,
        "load_average_5m": round(os.getloadavg()[1], 1),
        **found,
        "growth_5_to_200": round(few["events_per_second"] / many["events_per_second"], 2),
        "growth_5_to_200_by_cpu_seconds": round(many["cpu_us_an_event"] / few["cpu_us_an_event"], 2),
    }
    print(json.dumps(result, indent=1))
    print(goals.table(result))
    if asked.write:
        keep("spark_profiles", result)


if __name__ == "__main__":
    main()
