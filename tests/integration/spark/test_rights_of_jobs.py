"""Jobs of Spark on a broker with access control, each with the rights that `starling deploy acls` computes for it alone.

All jobs that have a user, except for `audience-report`: that is in `test_secured_job.py`.
"""

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from starling_common.kafka.clients import committed, consumer_config, partitions_of, produce_and_wait, watermarks
from starling_common.kafka.topic_range import read_topic
from starling_common.kafka.topics import BEHAVIOUR
from starling_common.testing import Service as Process
from starling_common.testing import eventually, free_port, running
from starling_common.time.instants import format_instant, wall_clock_ms
from starling_local.java import find_java
from starling_local.runtime import runtime_jars
from tests.conftest import Stack
from tests.secured_broker import secured_broker
from tests.secured_pipeline import TOKEN, WRITE_KEY, Secure, run, secure_installation
from tests.used_rights import denied, unused

STREAMING: Final = ("profiles", "views", "lake")
ONCE: Final = ("sql-traits", "imports", "backfill", "campaign-report", "replay", "trait-verify", "reprocess")
PATIENCE_SECONDS: Final = 600.0
"""Several JVMs and their Python workers start beside one another; no claim about speed."""
ORDER: Final = "Order Completed"
LAKE_TOPICS: Final = (BEHAVIOUR, "events.profile", "ingest.track", "ingest.identify")
KINDS: Final = ("track", "identify", "page", "screen", "group", "alias")
TRAIT: Final = {"key": "orders", "name": "Orders", "event": ORDER, "measure": "count"}
SQL: Final = (
    "SELECT e.user_id, count(*) AS value FROM events e "
    "JOIN products p ON p.product_id = get_json_object(e.properties, '$.product_id') GROUP BY e.user_id"
)
NOT_IN_THE_TEST: Final = {
    ("profiles", "profiles.aggregates"): "read at a start only, when nothing is published yet",
    ("views", "starling-views-unfinished"): "no micro-batch is left unfinished",
    ("backfill", "segments.backfill-states"): "no second run, which continues from the states of the first one",
    ("sql-traits", "profiles.dlq"): "no value that cannot be published",
    ("campaign-report", "campaigns.progress"): "no campaign",
    **{("backfill", f"accounts.{topic}"): "no segment of accounts" for topic in ("answers", "tallies")},
    **{("backfill", topic): "not counted by the segment" for topic in ("events.profile", "events.delivery", "lists.membership")},
    **{("replay", topic): "empty" for topic in ("events.delivery", "lists.membership")},
    **{(job, "stream.clock"): "empty" for job in ("backfill", "replay", "trait-verify")},
    **{
        ("reprocess", topic): "the lake and the normalizer have all records"
        for topic in (*(f"ingest.{kind}" for kind in KINDS), "profiles.aggregates")
    },
}
"""Rights that no job of this test used, and the reason. All others were used."""


class Jobs:
    """The jobs of one installation: each has its own user, and all share a lake in a directory."""

    def __init__(self, secure: Secure, home: Path) -> None:
        self._secure, self._home = secure, home

    def _environment(self, job: str) -> dict[str, str]:
        return self._secure.environment(job) | {
            "STARLING_INSTANCE_ID": job,
            "STARLING_HTTP__PORT": str(free_port()),
            "STARLING_CHECKPOINT_DIR": str(self._home / "checkpoints"),
            "STARLING_SPARK_JARS": os.pathsep.join(str(jar) for jar in (*runtime_jars("spark"), *runtime_jars("iceberg"))),
            "STARLING_SPARK_STATE_PARTITIONS": "1",
            "STARLING_SPARK_DRIVER_MEMORY": "512m",
            "STARLING_LAKE_WAREHOUSE": str(self._home / "warehouse"),
            "STARLING_LAKE_UPKEEP_MINUTES": "0",
            "STARLING_REPLAY_DIR": str(self._home / "replays"),
            "STARLING_IMPORTS_ROOTS": (self._home / "imports").as_uri(),
            "STARLING_IMPORTS_WRITE_KEYS": f"default={WRITE_KEY}",
            "PYSPARK_PYTHON": sys.executable,
            "JAVA_HOME": str(find_java().home),
        }

    @contextmanager
    def running(self, job: str) -> Iterator[Process]:
        """Run a streaming job for the duration of a block."""
        log = self._home / f"{job}.log"
        with running(f"starling_spark.jobs.{job}", self._environment(job), log, ready=False) as process:
            yield process

    def run(self, job: str, *words: str, **more: str) -> str:
        """Run a job until its end. Return what it prints."""
        command = [sys.executable, "-m", f"starling_spark.jobs.{job.replace('-', '_')}", *words]
        done = run(command, self._environment(job) | more, timeout_seconds=PATIENCE_SECONDS)
        assert done.returncode == 0, done.stdout + done.stderr[-4_000:]
        return done.stdout


@pytest.mark.long
def test_every_job_works_with_the_computed_rights_alone(stack: Stack, tmp_path: Path) -> None:
    with secured_broker(tmp_path / "broker") as broker, secure_installation(broker, stack, tmp_path) as secure:
        broker.add_users(f"starling-{name}" for name in (*STREAMING, *ONCE))
        jobs = Jobs(secure, tmp_path)
        _everything(secure, jobs, tmp_path)
        decisions = broker.decisions()
    assert denied((*STREAMING, *ONCE), decisions) == set()
    assert unused((*STREAMING, *ONCE), decisions) == set(NOT_IN_THE_TEST)


def _everything(secure: Secure, jobs: Jobs, home: Path) -> None:
    with (
        secure.process("ingest") as ingest,
        secure.process("normalizer"),
        secure.process("segmenter"),
        secure.process("projector"),
        secure.process("api", STARLING_BACKFILL_FROM_RECORDS="1") as api,
    ):
        headers = {"Authorization": f"Bearer {TOKEN}"}
        with (
            httpx.Client(base_url=api.url, headers=headers, timeout=60, trust_env=False) as client,
            httpx.Client(base_url=ingest.url, auth=(WRITE_KEY, ""), timeout=30, trust_env=False) as sender,
        ):
            _streaming_jobs(secure, jobs, client, sender)
            _single_runs(jobs, client, ingest.url, home)


def _streaming_jobs(secure: Secure, jobs: Jobs, api: httpx.Client, sender: httpx.Client) -> None:
    with jobs.running("profiles") as profiles, jobs.running("views") as views, jobs.running("lake") as lake:
        streaming, opened = (profiles, views, lake), secure.broker.opened

        def wait(is_done: Callable[[], object]) -> None:
            eventually(lambda: all(map(_goes_on, streaming)) and is_done(), PATIENCE_SECONDS)

        wait(lambda: all(job.is_ready() for job in streaming))
        _define(api, "/v1/computed-traits", TRAIT)
        _send(sender)
        # No schema can read it: the jobs write a dead letter, or a row of the quarantine.
        produce_and_wait(Producer({"bootstrap.servers": opened}), BEHAVIOUR, key=b"default/ada", value=b"broken", headers=[])
        wait(lambda: all(list(read_topic(opened, topic)) for topic in ("profiles.aggregates", "profiles.dlq", "views.dlq")))
        wait(lambda: api.get("/v1/views/sales_by_product_region").is_success)
        wait(partial(_is_past, opened, "starling-lake", LAKE_TOPICS))


def _single_runs(jobs: Jobs, api: httpx.Client, ingest_url: str, home: Path) -> None:
    (home / "imports").mkdir()
    (home / "imports" / "products.csv").write_text("sku,price\nmug,7\n")
    products = {"key": "products", "uri": (home / "imports").as_uri(), "format": "csv", "kind": "catalog", "product_column": "sku"}
    _define(api, "/v1/imports", products | {"columns": {"price": "product.price"}})
    assert jobs.run("imports", STARLING_IMPORTS_INGEST_URL=ingest_url) == "done=1\n", api.get("/v1/imports/products").text

    # Before another trait, which only a running job `profiles` would take up.
    assert jobs.run("trait-verify", "orders")

    _define(api, "/v1/computed-traits", {"key": "bought", "sql": SQL, "schedule": "0 3 * * *"})
    _define(api, "/v1/computed-traits/bought/run", {})
    assert jobs.run("sql-traits") == "active=1\n", api.get("/v1/computed-traits/bought").text

    _define(api, "/v1/segments", {"key": "buyers", "name": "Buyers", "where": {"event": ORDER, "within": "30d"}})
    assert api.get("/v1/segments/buyers").json()["status"] == "backfilling"
    jobs.run("backfill")
    eventually(lambda: api.get("/v1/segments/buyers").json()["status"] == "active", PATIENCE_SECONDS)

    assert jobs.run("campaign-report", "--out", str(home / "report"))
    now = format_instant(wall_clock_ms() - 1_000)
    assert jobs.run("replay", "run", "--until", now, "--into", "now")
    assert jobs.run("replay", "diff", "now")
    assert jobs.run("reprocess", "run", "--into", "again")


def _define(api: httpx.Client, path: str, document: dict[str, Any]) -> None:
    answer = api.post(path, json=document)
    assert answer.is_success, answer.text


def _send(sender: httpx.Client) -> None:
    order = {"product_id": "mug", "revenue": 7}
    for path, item in (
        ("identify", {"traits": {"region": "Berlin"}}),
        ("track", {"event": ORDER, "properties": order}),
        ("group", {"groupId": "team"}),
        ("alias", {"previousId": "a-17"}),
        ("page", {"name": "Home"}),
        ("screen", {"name": "Home"}),
    ):
        answer = sender.post(f"/v1/{path}", json={"userId": "ada", **item})
        assert answer.is_success, answer.text


def _is_past(brokers: str, group: str, topics: Iterable[str]) -> bool:
    """Return whether a group has committed the ends of these topics."""
    consumer = Consumer(consumer_config(brokers, group))
    try:
        places = [TopicPartition(topic, number) for topic in topics for number in partitions_of(consumer, topic, 10)]
        found = committed(consumer, places, 10)
        ends = [watermarks(consumer, one.topic, one.partition, 10)[1] for one in places]
        return all(one.offset >= end for one, end in zip(found, ends, strict=True) if end)
    finally:
        consumer.close()


def _goes_on(job: Process) -> bool:
    assert job.process.poll() is None, job.log.read_text()[-4_000:]
    return True
