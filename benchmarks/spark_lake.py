"""The lake on Spark: how fast a topic gets into it, beside reading and decoding alone.

Each round writes the whole topic into a table of its own, in the micro-batches and by the code of the job itself: in a directory,
in an object store on the same machine, and there also by Iceberg's writer, as with settings that the workers do not know. In the
same run on the same cores, Spark only reads and decodes that topic and drops it.
Run: python benchmarks/spark_lake.py [--small] [--write]
"""

import argparse
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from common import goals, shop
from common.bench import Stack, keep, stack
from common.object_store import BUCKET, object_store
from common.segmenting import load
from common.spark_cpu import Meter
from pyspark.sql import DataFrame
from spark_profiles import DAYS, Bench, Took, rates, seconds_of

from starling_common.kafka.topics import BEHAVIOUR
from starling_common.settings import Http, Kafka, SchemaRegistry
from starling_common.wire import Registry
from starling_local.runtime import runtime_jars
from starling_spark.jobs.lake.batches import LakeWriter, Source
from starling_spark.kafka.sources import kafka_records, kafka_spans
from starling_spark.lakehouse.iceberg import CATALOG, Lake, iceberg_config
from starling_spark.lakehouse.schema.tables import TABLES
from starling_spark.lakehouse.settings import LakeSettings
from starling_spark.lakehouse.stores.translation import StoreUnknown
from starling_spark.session.spark import open_session

TABLE: Final = next(table for table in TABLES if BEHAVIOUR in table.topics)


def settings(made: Stack, directory: Path) -> LakeSettings:
    """As an operator would, with defaults for all that can be turned."""
    jars = (*runtime_jars("spark"), *runtime_jars("iceberg"))
    return LakeSettings(
        kafka=Kafka(brokers=made.brokers),
        registry=SchemaRegistry(url=made.registry_url),
        http=Http(port=1),
        instance_id="benchmark",
        spark_jars=os.pathsep.join(map(str, jars)),
        spark_master="local[2]",
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
        given = found.model_copy(update={"spark_jars": jars})
        spark = open_session("benchmark", given, {**iceberg_config(found), **s3}, is_streaming=True)
        try:
            with Meter() as meter:
                bench = Bench(made, spark, Path(found.checkpoint_dir), meter)
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--small", action="store_true", help="so light that it is over in minutes; not representative")
    parser.add_argument("--write", action="store_true", help="keep the result in benchmarks/results/spark_lake.json")
    asked = parser.parse_args()
    if asked.small:
        asked.events, asked.rounds, asked.write = 50_000, 1, False
    before = os.getloadavg()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as scratch, stack(Path(scratch) / "stack") as made:
        span_ms = DAYS * shop.DAY_MS
        load(made, BEHAVIOUR, shop.behaviour(asked.events, 1, shop.FIRST_MS, span_ms, (shop.WIDE_NAMES, shop.WIDE_WEIGHTS)))
        found = measure_lake(made, Path(scratch), asked.events, asked.rounds)
    found |= {"events_in_topic": asked.events, "rounds": asked.rounds, "load_average_5m_before": round(before[1], 1)}
    result = {"benchmark": "spark_lake", "cores": os.cpu_count(), "lake": found}
    print(json.dumps(result, indent=1))
    print(goals.table(result))
    if asked.write:
        keep("spark_lake", result)


if __name__ == "__main__":
    main()
