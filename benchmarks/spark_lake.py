"""Spark: how fast a topic gets into the lake, beside reading and decoding alone; and a batch with two executors beside one.

Lake: each round writes the whole topic into a table of its own, in the micro-batches and by the code of the job itself, in a
directory and in an object store on the same machine; in the latter also by Iceberg's writer, as with settings that the workers do
not know. Beside it, in the same run on the same cores, Spark only reads and decodes that topic and drops it.
Executors: a cluster on this machine, each executor a process with one core. The batch reads the topic several times over,
decodes every record and counts events by name and hour. Each stage is reported with its duration and how much of it
ran side by side. Run: python benchmarks/spark_lake.py [--small] [--write]
"""

import argparse
import json
import os
import statistics
import tempfile
from collections.abc import Callable, Mapping
from functools import partial, reduce
from pathlib import Path
from typing import Any, Final, NamedTuple

import psutil
import spark_profiles
from common import goals, shop, stages
from common.bench import Stack, keep, kept, stack
from common.object_store import BUCKET, object_store
from common.segmenting import load
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession, functions
from spark_profiles import DAYS, Bench, Took, rates, seconds_of

from starling_common.kafka.topics import BEHAVIOUR
from starling_common.settings import Http, Kafka, SchemaRegistry
from starling_common.wire import Registry
from starling_local.runtime import runtime_jars
from starling_spark.jobs.lake.batches import LakeWriter, Source
from starling_spark.kafka.decoding import Reading, decoded
from starling_spark.kafka.sources import kafka_records, kafka_spans
from starling_spark.lakehouse.iceberg import CATALOG, Lake, iceberg_config
from starling_spark.lakehouse.schema.tables import TABLES
from starling_spark.lakehouse.settings import LakeSettings
from starling_spark.lakehouse.stores.translation import StoreUnknown
from starling_spark.session.spark import open_session

EXECUTORS: Final = (1, 2)
EXECUTOR_MB: Final = 1024
CLUSTER: Final = {
    "spark.executor.memory": f"{EXECUTOR_MB}m",
    # As the jobs' own JVM on one machine.
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
}
TABLE: Final = next(table for table in TABLES if BEHAVIOUR in table.topics)

# What workers run of a benchmark's modules travels with the job: they cannot import them.
cloudpickle.register_pickle_by_value(spark_profiles)  # type: ignore[no-untyped-call]


def settings(made: Stack, directory: Path, master: str = "local[2]") -> LakeSettings:
    """As an operator would, with defaults for all that can be turned."""
    jars = (*runtime_jars("spark"), *runtime_jars("iceberg"))
    return LakeSettings(
        kafka=Kafka(brokers=made.brokers),
        registry=SchemaRegistry(url=made.registry_url),
        http=Http(port=1),
        instance_id="benchmark",
        spark_jars=os.pathsep.join(map(str, jars)),
        spark_master=master,
        checkpoint_dir=str(directory / "checkpoints"),
        lake_warehouse=str(directory / "warehouse"),
    )


class ByRows(Lake):
    """A lake to which the workers cannot write."""

    def check_store(self, table: str) -> None:
        """Refuse the store."""
        raise StoreUnknown(f"{table}: the benchmark compares both ways")


def lake_round(made: Stack, found: LakeSettings, lake: Lake, cpu_seconds: Callable[[], float]) -> Took:
    """The whole topic into a new table."""
    again = partial(kafka_spans, lake.spark, made.brokers)
    writer = LakeWriter(lake, (TABLE,), Source(Registry(made.registry_url), made.registry_url), again)
    with_headers = not writer.open().workers_write
    assert with_headers == isinstance(lake, ByRows), "the object store refuses the workers: see the warning"

    def write(batch: DataFrame, _batch: int) -> None:
        writer.write(batch)

    before = cpu_seconds()
    query = (
        kafka_records(lake.spark, made.brokers, [BEHAVIOUR], found.lake_batch_records, headers=with_headers)
        .writeStream.option("checkpointLocation", f"{found.checkpoint_dir}/lake-{lake.namespace}")
        .trigger(availableNow=True)
        .foreachBatch(write)
        .start()
    )
    query.awaitTermination()
    took = Took(seconds_of(query.recentProgress), cpu_seconds() - before)
    lake.drop(TABLE.name)
    return took


def measure_lake(made: Stack, directory: Path, events: int, rounds: int) -> dict[str, Any]:
    """Rounds interleaved, medians; the first of each warms up. The store's own processor time is in no figure."""
    found = settings(made, directory)
    jars = os.pathsep.join((found.spark_jars, *map(str, runtime_jars("s3"))))
    took: dict[str, list[Took]] = {"read_and_decode": [], "lake": [], "lake_s3": [], "lake_s3_by_rows": []}
    with object_store(directory / "s3") as s3:
        spark = open_session("benchmark", found.model_copy(update={"spark_jars": jars}), {**iceberg_config(found), **s3})
        try:
            bench = Bench(made, spark, Path(found.checkpoint_dir))
            remote = spark.newSession()
            remote.conf.set(f"spark.sql.catalog.{CATALOG}.warehouse", f"s3a://{BUCKET}/lake")
            for number in range(rounds + 1):
                took["read_and_decode"].append(bench.read(()))
                lakes = (Lake(spark, f"round{number}"), Lake(remote, f"s3_{number}"), ByRows(remote, f"rows{number}"))
                for name, lake in zip(("lake", "lake_s3", "lake_s3_by_rows"), lakes, strict=True):
                    took[name].append(lake_round(made, found, lake, bench.cpu_seconds))
                print(f"round {number}: {', '.join(f'{name} {one[-1]}' for name, one in took.items())}", flush=True)
        finally:
            spark.stop()
    figures = {name: rates(events, one[1:]) for name, one in took.items()}
    return figures | lake_shares(figures)


def lake_shares(figures: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """The rates and costs of the lake relative to reading and decoding alone, and in S3 relative to a directory."""
    read, local, remote = (figures[name] for name in ("read_and_decode", "lake", "lake_s3"))
    return {
        "rate_to_read_and_decode": round(local["events_per_second"] / read["events_per_second"], 2),
        "by_cpu_seconds": round(read["cpu_us_an_event"] / local["cpu_us_an_event"], 2),
        "s3_rate_to_directory": round(remote["events_per_second"] / local["events_per_second"], 2),
        "s3_by_cpu_seconds": round(local["cpu_us_an_event"] / remote["cpu_us_an_event"], 2),
    }


def whole_topic(spark: SparkSession, made: Stack) -> DataFrame:
    """`sources.RECORDS` of all that is there, a task a partition."""
    read = spark.read.format("kafka").option("kafka.bootstrap.servers", made.brokers).option("includeHeaders", "true")
    time = functions.unix_millis("timestamp").alias("timestamp_ms")
    return read.option("subscribe", BEHAVIOUR).load().select("topic", "partition", "offset", time, "key", "value", "headers")


def batch(spark: SparkSession, made: Stack, readings: int) -> DataFrame:
    """Every event, decoded as the lake does, counted by name and hour."""
    wire = spark_profiles.event_wire(made)
    records = reduce(DataFrame.unionAll, [whole_topic(spark, made) for _ in range(readings)])
    events = decoded(records, Reading.plain(wire, BEHAVIOUR)).where("refused IS NULL")
    return events.groupBy("record.name", functions.date_trunc("hour", "record.event_time").alias("hour")).count()


class Ran(NamedTuple):
    """One batch on a fresh cluster, warmed up. `cores_busy` of the whole machine."""

    events: int
    cores_busy: float
    job: stages.Job


def with_executors(count: int, made: Stack, directory: Path, readings: int) -> Ran:
    """The batch on a cluster of so many executors."""
    log = Path(tempfile.mkdtemp(dir=directory, prefix=f"executors-{count}-"))
    found = settings(made, directory, f"local-cluster[{count},1,{EXECUTOR_MB}]")
    spark = open_session("benchmark", found, CLUSTER | {"spark.eventLog.dir": log.as_uri()})
    try:
        for name, times in (("warm-up", 1), ("measured", readings)):
            psutil.cpu_percent()
            spark.sparkContext.setJobGroup(name, name)
            counted = batch(spark, made, times).agg(functions.sum("count")).collect()[0][0]
            busy = round(psutil.cpu_percent() / 100 * (psutil.cpu_count() or 1), 1)
    finally:
        spark.stop()
    return Ran(counted, busy, stages.jobs(log)[-1])


def measure_executors(made: Stack, directory: Path, readings: int, rounds: int) -> dict[str, Any]:
    """One executor and two in turns, so that a busy machine slows both; medians, and the stages of the last round."""
    ran: dict[int, list[Ran]] = {count: [] for count in EXECUTORS}
    for number in range(rounds):
        for count in EXECUTORS:
            ran[count].append(with_executors(count, made, directory, readings))
            print(f"round {number}: {count} executors: {ran[count][-1]}", flush=True)
    figures = {str(count): executor_figures(found) for count, found in ran.items()}
    one, two = (figures[str(count)]["seconds"] for count in EXECUTORS)
    return figures | {"speedup": round(one / two, 2)}


def executor_figures(found: list[Ran]) -> dict[str, Any]:
    job = found[-1].job
    return {
        "events": found[-1].events,
        "seconds": round(statistics.median(one.job.seconds for one in found), 2),
        "cores_busy": statistics.median(one.cores_busy for one in found),
        "driver_seconds": job.driver_seconds,
        "stages": [stage._asdict() for stage in job.stages],
    }


def stage_figures(events: int) -> dict[str, Any]:
    """Of a part: how long the topic was, and whether the machine was anybody else's too."""
    return {"events_in_topic": events, "load_average_5m": round(os.getloadavg()[1], 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=2_000_000)
    parser.add_argument("--readings", type=int, default=5, help="how often the batch for executors reads the topic")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--small", action="store_true", help="so light that it is over in minutes; not representative")
    parser.add_argument("--only", choices=("lake", "executors"), help="one of the two parts; --write leaves the other as it was")
    parser.add_argument("--write", action="store_true", help="keep the result in benchmarks/results/spark_lake.json")
    asked = parser.parse_args()
    events, readings, rounds = (50_000, 2, 1) if asked.small else (asked.events, asked.readings, asked.rounds)
    with tempfile.TemporaryDirectory(dir="/var/tmp") as scratch, stack(Path(scratch) / "stack") as made:
        directory = Path(scratch)
        span_ms = DAYS * shop.DAY_MS
        load(made, BEHAVIOUR, shop.behaviour(events, 1, shop.FIRST_MS, span_ms, (shop.WIDE_NAMES, shop.WIDE_WEIGHTS)))
        parts: Mapping[str, Callable[[], dict[str, Any]]] = {
            "lake": lambda: measure_lake(made, directory, events, rounds),
            "executors": lambda: measure_executors(made, directory, readings, rounds),
        }
        found = {name: measure() | stage_figures(events) for name, measure in parts.items() if asked.only in {None, name}}
    result = {"benchmark": "spark_lake", "cores": os.cpu_count(), **found}
    print(json.dumps(result, indent=1))
    print(goals.table(result))
    if asked.write and not asked.small:
        keep("spark_lake", kept("spark_lake") | result)


if __name__ == "__main__":
    main()
