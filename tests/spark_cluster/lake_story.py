"""The job `lake` on a cluster, which loses a worker and, two times, its driver."""

import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from starling_common.kafka.topics import BEHAVIOUR
from starling_common.settings import Cassandra
from starling_spark.lakehouse.iceberg import COMMITS
from tests.conftest import Stack
from tests.integration.spark.lake_instance import LakeInstance, behaviour, received
from tests.spark_cluster.lake_rows import Places
from tests.spark_cluster.rig import ENVIRONMENT, WORKERS, Rig, pythons
from tests.spark_cluster.story import PATIENCE_SECONDS

TRACK: Final = "ingest.track"


class LakeStory:
    """A `lake` job on the cluster, and the records of two topics, of which some are broken."""

    def __init__(self, cluster: Rig, directory: Path) -> None:
        stack = Stack(cluster.broker.opened, cluster.registry_url, Cassandra(contact_points="127.0.0.1"))
        self.lake = LakeInstance(stack, directory)
        self._cluster = cluster
        self._broken: set[bytes] = set()

    @contextmanager
    def deployed(self) -> Iterator[None]:
        """Create the topics for the duration of a block. After an exception the logs are printed."""
        self.lake.deploy()
        try:
            yield
        except BaseException:
            print(self.lake.log_tail(), self._cluster.logs())  # noqa: T201 - pytest shows it with the failed test
            raise
        finally:
            self.lake.remove()

    def more(self, count: int) -> None:
        """Send this number of records to each topic, and a broken one."""
        lake = self.lake
        lake.send(BEHAVIOUR, *[lake.value(BEHAVIOUR, behaviour(f"event {number}")) for number in range(count)])
        items = [lake.value(TRACK, received("track", {"event": f"item {number}"})) for number in range(count)]
        self._broken.add(items[0][:-1])
        lake.send(TRACK, *items, items[0][:-1])

    def run(self, settings: Mapping[str, str]) -> None:
        """Let the job write everything, although a worker and the driver die. `settings`: of the job."""
        # Micro-batches of fewer records, so that several follow each other.
        given: dict[str, Any] = {**settings, "STARLING_LAKE_BATCH_RECORDS": "200"}
        lake = self.lake
        self.more(300)
        with lake.running(**given) as service:
            lake.settle(service, PATIENCE_SECONDS)
            self._a_worker_dies()
            lake.settle(service, PATIENCE_SECONDS)
            assert len(self._cluster.busy_workers()) == WORKERS - 1
            self.more(400)
            service.kill()
        self.more(200)
        # The next driver dies within a micro-batch: one table has its rows, and neither the others nor the checkpoint know them.
        with lake.running(ready=False, **given, STARLING_FAILPOINT=COMMITS[1]) as service:
            assert service.process.wait(PATIENCE_SECONDS) == -signal.SIGKILL, lake.log_tail()
        # The last one continues from the tables and the checkpoint.
        with lake.running(**given) as service:
            lake.settle(service, PATIENCE_SECONDS)
            assert service.stop() == 0

    def _a_worker_dies(self) -> None:
        busy = self._cluster.busy_workers()
        assert len(busy) == WORKERS
        assert {python for worker in busy for python in pythons(worker)} == {f"./{ENVIRONMENT}/bin/python"}
        self.more(400)
        assert busy[1].kill() > 1
        self.more(400)

    def assert_each_once(self, found: Mapping[str, Places]) -> None:
        """`found`: the places of the rows by table, sorted."""
        sent = sorted(self.lake.sent)
        refused = [place for place in sent if self.lake.sent[place] in self._broken]
        assert len(refused) == 5
        assert found["behaviour_events"] == [place for place in sent if place[0] == BEHAVIOUR]
        assert found["ingest_items"] == [place for place in sent if place[0] == TRACK and place not in refused]
        assert found["quarantine"] == refused
