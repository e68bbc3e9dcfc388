"""Jobs on several hosts, with their checkpoints and the lake in an object store. `make test-spark-cluster` runs them."""

import json
import os
import re
import signal
import subprocess
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import psutil
import pyarrow.parquet as pq
import pytest

from starling_common.kafka.topics import BEHAVIOUR
from starling_common.settings import Cassandra
from starling_common.testing import free_port
from starling_rules.imports import DONE, RUNNING
from tests.conftest import Stack
from tests.integration.spark.instance import Instance, wait_for
from tests.integration.spark.lake_instance import LakeInstance
from tests.s3_server import BUCKET
from tests.spark_cluster.import_story import FILES, GOOD_ROWS, import_story
from tests.spark_cluster.lake_rows import lake_places, places_by_pyiceberg
from tests.spark_cluster.lake_story import LakeStory
from tests.spark_cluster.nessie_lake import nessie_lake
from tests.spark_cluster.rig import CHECKPOINTS, ENVIRONMENT, WORKERS, Rig, pythons, rig
from tests.spark_cluster.story import DAY_MS, PATIENCE_SECONDS, START_MS, TRAITS, Story

CANCELLED: Final[dict[str, Any]] = {"event": "Order Cancelled"}
LOST: Final = "ExecutorLostFailure"
BY_A_WORKER: Final = re.compile(r".*/[0-9a-f]{32}\.parquet")
"""The names of files that Python workers have written to the lake, and not Iceberg's writer."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """Master, workers and the parts beside them, for all tests of the file."""
    with rig(tmp_path_factory.mktemp("cluster")) as made:
        print(f"the workers are {made.cluster.network.kind}")  # noqa: T201 - pytest shows it with -s
        yield made


@pytest.fixture(autouse=True)
def whole(cluster: Rig) -> Iterator[None]:
    """Start the workers again that a test has killed."""
    yield
    for worker in cluster.cluster.workers:
        if worker.process is None or worker.process.poll() is not None:
            worker.start()
    cluster.cluster.wait_for_workers(WORKERS)


def test_traits_equal_the_language_although_a_worker_dies(cluster: Rig, tmp_path: Path) -> None:
    """Submitted by spark-submit, with the checkpoint in the object store."""
    # The driver runs this Python too: it asks for the schema of the state.
    (tmp_path / ENVIRONMENT).symlink_to(cluster.home / ENVIRONMENT)
    story = Story(cluster, tmp_path)
    instance = story.instance
    instance.deploy()
    try:
        story.more(200)
        for key, document in TRAITS.items():
            instance.define(key, document)
        story.start(cluster.submit("profiles", "spark"), STARLING_SPARK_MASTER="")
        story.assert_exact(TRAITS)
        _a_worker_dies(story)
        until_ms = _a_new_trait_reads_the_history(story)
        assert stop(instance) == 0
        _the_checkpoint_continues(story, until_ms)
    except BaseException:
        print(instance.log_tail(), cluster.logs())  # noqa: T201 - pytest shows it with the failed test
        raise
    finally:
        instance.remove()
    assert set(cluster.tasks()) == {worker.host.address for worker in cluster.cluster.workers}
    assert [name for name in cluster.s3.names("checkpoints/profiles") if name.endswith("live.json")]
    assert not (tmp_path / "checkpoints").exists()


def _a_worker_dies(story: Story) -> None:
    cluster = story.cluster
    busy = cluster.busy_workers()
    assert len(busy) == WORKERS
    assert {python for worker in busy for python in pythons(worker)} == {f"./{ENVIRONMENT}/bin/python"}
    story.more(100)
    assert busy[0].kill() > 1
    story.more(200)
    story.assert_exact(TRAITS)
    assert len(cluster.busy_workers()) == WORKERS - 1


def _a_new_trait_reads_the_history(story: Story) -> int:
    """A batch job reads it, and the query merges it. Return the stream time."""
    story.instance.define("cancelled", CANCELLED)
    story.more(50)
    until_ms = START_MS + 80 * DAY_MS
    story.assert_exact({**TRAITS, "cancelled": CANCELLED}, until_ms)
    return until_ms


def _the_checkpoint_continues(story: Story, until_ms: int) -> None:
    """A value that is unchanged is not published again."""
    instance = story.instance
    published = Counter(one.record["user_id"] for one in instance.read("aggregates"))
    story.start()
    story.send("new", until_ms, "Order Completed", {})
    instance.settle(PATIENCE_SECONDS)
    assert instance.values()["new", "orders"] == 1
    assert set(Counter(one.record["user_id"] for one in instance.read("aggregates")) - published) == {"new"}
    assert instance.read("dead_letters") == []
    assert instance.stop() == 0


def stop(instance: Instance) -> int:
    """Stop the job of spark-submit: its process is the JVM, and the job is the Python process below it."""
    assert instance.process is not None
    [driver] = [one for one in psutil.Process(instance.process.pid).children() if "python" in one.name()]
    driver.send_signal(signal.SIGTERM)
    return instance.process.wait(PATIENCE_SECONDS)


def test_a_new_trait_has_the_history_of_a_lake_in_an_object_store(cluster: Rig, tmp_path: Path) -> None:
    """Topic and checkpoint are lost; the executors read the tables, at a catalog in a database."""
    (tmp_path / ENVIRONMENT).symlink_to(cluster.home / ENVIRONMENT)
    stack = Stack(cluster.broker.opened, cluster.registry_url, Cassandra(contact_points="127.0.0.1"))
    lake, story = LakeInstance(stack, tmp_path), Story(cluster, tmp_path)
    instance = story.instance
    instance.topics["events"] = lake.prefix + BEHAVIOUR
    name = f"n{uuid.uuid4().hex[:10]}"
    given: dict[str, Any] = cluster.settings("spark", "iceberg", "jdbc") | cluster.lake_settings()
    given |= {"STARLING_LAKE_NAMESPACE": name, "STARLING_CHECKPOINT_DIR": f"{CHECKPOINTS}/{name}"}
    instance.deploy()
    lake.deploy(BEHAVIOUR)
    try:
        for key, document in TRAITS.items():
            instance.define(key, document)
        story.more(300)
        with lake.running(**given) as service:
            lake.settle(service, PATIENCE_SECONDS, instance.ends("events"))
            assert service.stop() == 0
        story.start(**given)
        story.assert_exact(TRAITS)
        instance.delete_records()
        story.more(30)
        instance.define("cancelled", CANCELLED)
        until_ms = START_MS + 80 * DAY_MS
        story.assert_exact({**TRAITS, "cancelled": CANCELLED}, until_ms)
        assert instance.stop() == 0
        _the_checkpoint_is_lost(story, until_ms, given | {"STARLING_CHECKPOINT_DIR": f"{CHECKPOINTS}/{name}-again"})
    except BaseException:
        print(instance.log_tail(), lake.log_tail(), cluster.logs())  # noqa: T201 - pytest shows it with the failed test
        raise
    finally:
        instance.remove()
        lake.remove()
    assert instance.log.read_text().count("history_missing") == 0


def _the_checkpoint_is_lost(story: Story, until_ms: int, given: Mapping[str, str]) -> None:
    """The job begins with the lake, and has the same values."""
    instance = story.instance
    begun = instance.log.read_text().count("definitions_in_force")
    story.start(**given)
    story.send("new", until_ms, "Order Completed", {})
    wait_for(lambda: instance.log.read_text().count("definitions_in_force") > begun, PATIENCE_SECONDS, instance.log_tail)
    story.assert_exact({**TRAITS, "cancelled": CANCELLED}, until_ms)
    assert instance.stop() == 0


# The session with which the test reads the tables leaves a socket of py4j to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_lake_in_an_object_store_contains_each_record_once_although_a_worker_dies(cluster: Rig, tmp_path: Path) -> None:
    """The catalog is in a database."""
    story = LakeStory(cluster, tmp_path)
    with story.deployed():
        story.run(cluster.settings("spark", "iceberg", "jdbc") | cluster.lake_settings())
        found = lake_places(cluster, story.lake, tmp_path)
    story.assert_each_once(found)
    assert_written_by_workers(cluster, "lake")
    assert cluster.s3.names("checkpoints/lake-3/commits")
    assert exported(cluster, tmp_path, story.lake) == found["behaviour_events"]


def test_the_lake_of_a_catalog_service_contains_each_record_once_although_a_worker_dies(cluster: Rig, tmp_path: Path) -> None:
    """The catalog is Nessie, whose tables are beside the checkpoints."""
    story = LakeStory(cluster, tmp_path)
    checkpoints = f"{CHECKPOINTS}/of-nessie"
    with nessie_lake(cluster) as lake, story.deployed():
        given = cluster.settings("spark", "iceberg", "iceberg-aws") | lake.settings()
        story.run(given | {"STARLING_CHECKPOINT_DIR": checkpoints})
        found = places_by_pyiceberg(lake.opened(), story.lake)
    story.assert_each_once(found)
    assert_written_by_workers(cluster, "of-nessie")
    assert cluster.s3.names("checkpoints/of-nessie/lake-3/commits")


def test_an_import_sends_each_row_with_its_own_id_although_a_worker_dies(cluster: Rig, tmp_path: Path) -> None:
    """The executors read files in the object store, and store the progress in a Cassandra of the network."""
    lost = cluster.tasks(LOST)
    with import_story(cluster, tmp_path) as story:
        story.put_files()
        place = story.request()
        story.edge.behaviour = "slow"
        with story.job() as job:
            busy = story.busy_workers(place, job)
            assert {python for worker in busy for python in pythons(worker)} == {f"./{ENVIRONMENT}/bin/python"}
            assert busy[0].kill() > 1
            story.edge.behaviour = "faultless"
            assert job.wait(PATIENCE_SECONDS) == 0
        assert (cluster.tasks(LOST) - lost).keys() == {busy[0].host.address}
        sent = story.imports.message_ids()
        print(f"{len(set(sent))} rows, of which {len(sent) - len(set(sent))} were sent again")  # noqa: T201 - as above
        assert set(sent) == story.message_ids()
        assert story.imports.rejects(place) == [
            rejected
            for file in FILES
            for rejected in ((file, GOOD_ROWS + 1, "user", "missing_id"), (file, GOOD_ROWS + 2, "", "wrong_columns"))
        ]
        assert story.imports.state(place) == (DONE, None)
        # As a driver that was killed before it had stored that the import is done.
        assert story.imports.database.write_if(
            "UPDATE {ks}.imports SET state = ? WHERE workspace = ? AND key = ? IF EXISTS", (RUNNING, *place)
        )
        with story.job() as job:
            assert job.wait(PATIENCE_SECONDS) == 0
        assert story.imports.state(place) == (DONE, None)
        assert story.imports.message_ids() == sent


def assert_written_by_workers(cluster: Rig, prefix: str) -> None:
    """Check who has written the data files below a prefix, of which the rows show nothing."""
    data = [name for name in cluster.s3.names(prefix) if name.endswith(".parquet")]
    assert data
    assert all(BY_A_WORKER.fullmatch(name) for name in data)


def exported(cluster: Rig, directory: Path, lake: LakeInstance) -> list[tuple[str, int, int]]:
    """Export a table to the object store, by executors that write files there with Arrow. Return the places of the rows, sorted."""
    definition = {"source": "behaviour_events", "sink": "parquet", "to": cluster.arrow_root("exports"), "columns": ["name"]}
    given = {
        **cluster.settings("spark", "iceberg", "jdbc"),
        **cluster.lake_settings(),
        **cluster.s3.arrow(),
        "STARLING_SPARK_MASTER": "",
        "STARLING_REGISTRY__URL": cluster.registry_url,
        "STARLING_INSTANCE_ID": "exports",
        "STARLING_HTTP__PORT": str(free_port()),
        "STARLING_EXPORTS": json.dumps({"events": definition}),
    }
    command = cluster.submit("exports", "spark", "iceberg", "jdbc", words=("run",))
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("STARLING_")}
    done = subprocess.run(command, env=inherited | given, cwd=directory, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-4_000:]
    files = [f"{BUCKET}/{name}" for name in cluster.s3.names("exports") if name.endswith(".parquet")]
    rows = [row for file in files for row in pq.read_table(file, filesystem=cluster.s3.files()).to_pylist()]
    return sorted((row["origin_topic"].removeprefix(lake.prefix), row["origin_partition"], row["origin_offset"]) for row in rows)
