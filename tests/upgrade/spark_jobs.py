"""Spark jobs of a former commit, and then those of this one, on the same checkpoints and tables. `make test-upgrade` runs them.

The former jobs run with the Python and the jars of this commit.
"""

import io
import os
import random
import shutil
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import psutil
import pytest

from starling_common.kafka.topics import BEHAVIOUR
from starling_common.testing import own_keyspace
from tests.conftest import ROOT, Stack
from tests.integration.spark.instance import Instance
from tests.integration.spark.lake_instance import LakeInstance, behaviour, received
from tests.integration.spark.views_instance import ViewsInstance
from tests.unit.spark.evaluator import differences

FROM: Final = os.environ["STARLING_UPGRADE_FROM"]
DAY_MS: Final = 86_400_000
START_MS: Final = 1_700_000_000_000
NOON_MS: Final = 1_700_049_600_000
PATIENCE_SECONDS: Final = 600.0
MORE_VIEWS: Final = "tests/integration/spark/more_views.py"
TRACK: Final = "ingest.track"
TRAITS: Final[Mapping[str, Mapping[str, Any]]] = {
    "spent": {"event": "Order Completed", "measure": {"sum": "revenue"}, "within": "30d"},
    "orders": {"event": "Order Completed"},
    "skus": {"event": "Order *", "measure": {"distinct": "sku"}},
    "last": {"event": "*", "measure": {"last": "sku"}, "within": "10d"},
}
NEW: Final[Mapping[str, Any]] = {"event": "Order Cancelled", "measure": {"max": "revenue"}}


@pytest.fixture(scope="module")
def former(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the environment in which Python finds the packages of the former commit."""
    tree = tmp_path_factory.mktemp("former")
    archive = subprocess.run(["git", "archive", FROM], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
        packed.extractall(tree)  # noqa: S202 - our own commit
    roots = [*(one for kind in ("apps", "libs", "services") for one in (tree / kind).iterdir()), tree / "spark"]
    path = {"PYTHONPATH": os.pathsep.join(map(str, roots))}
    code = "import starling_spark, starling_common; print(starling_spark.__file__, starling_common.__file__)"
    found = subprocess.run([sys.executable, "-c", code], env=os.environ | path, capture_output=True, text=True, check=True).stdout
    assert found.count(str(tree)) == 2
    return path


class Traits:
    """A job of computed traits, and all events that were sent."""

    def __init__(self, instance: Instance, seed: int) -> None:
        self.instance = instance
        self.events: list[tuple[str, int, str, Mapping[str, Any]]] = []
        self._chance = random.Random(seed)

    def more(self, count: int) -> None:
        """Send events of random users, some of them late."""
        chance = self._chance
        for _ in range(count):
            time_ms = START_MS + len(self.events) * DAY_MS // 10 - chance.choice([0, 0, 0, 3 * DAY_MS])
            properties = {"revenue": chance.randint(1, 200) / 4, "sku": f"s{chance.randint(0, 9)}"}
            self.send(
                f"u{chance.randint(0, 60)}", time_ms, chance.choice(["Order Completed", "Order Cancelled", "Page"]), properties
            )

    def send(self, user: str, time_ms: int, name: str, properties: Mapping[str, Any]) -> None:
        self.events.append((user, time_ms, name, properties))
        self.instance.event(user, time_ms, name, **properties)

    def assert_exact(self, documents: Mapping[str, Mapping[str, Any]], until_ms: int) -> None:
        self.instance.advance(until_ms)
        self.instance.settle(PATIENCE_SECONDS)
        assert differences(self.instance.values(), documents, self.events, until_ms) == []


@pytest.fixture
def traits(stack: Stack, tmp_path: Path) -> Iterator[Traits]:
    instance = Instance(stack.brokers, stack.registry_url, tmp_path)
    instance.deploy()
    yield Traits(instance, seed=7)
    instance.remove()


def test_computed_traits_go_on_and_publish_no_unchanged_value_again(traits: Traits, former: Mapping[str, str]) -> None:
    instance, until_ms = traits.instance, START_MS + 60 * DAY_MS
    for key, document in TRAITS.items():
        instance.define(key, document)
    traits.more(300)
    instance.start(**former)
    traits.assert_exact(TRAITS, until_ms)
    assert instance.stop() == 0
    before = Counter(_value(one.record) for one in instance.read("aggregates"))
    assert len(before) > 100
    instance.start()
    traits.send("new", until_ms, "Order Completed", {"revenue": 3, "sku": "s1"})
    instance.settle(PATIENCE_SECONDS)
    again = Counter(_value(one.record) for one in instance.read("aggregates")) - before
    assert {user for user, *_ in again} == {"new"}
    # Windows that began under the former commit end, and a new trait counts the events of before.
    instance.define("cancelled", NEW)
    traits.more(100)
    traits.assert_exact({**TRAITS, "cancelled": NEW}, until_ms + 12 * DAY_MS)
    assert instance.stop() == 0
    assert instance.read("dead_letters") == []


def test_computed_traits_go_on_after_a_kill_within_a_micro_batch(traits: Traits, former: Mapping[str, str]) -> None:
    instance, until_ms = traits.instance, START_MS + 60 * DAY_MS
    for key, document in TRAITS.items():
        instance.define(key, document)
    traits.more(200)
    instance.start(**former)
    instance.settle(PATIENCE_SECONDS)
    traits.more(300)
    instance.kill()
    instance.start()
    traits.assert_exact(TRAITS, until_ms)
    assert instance.stop() == 0


def _value(record: Mapping[str, Any]) -> tuple[str, str, str | None]:
    return record["user_id"], record["trait_key"], record["value"]


@pytest.mark.parametrize("has_checkpoint", [True, False], ids=["its checkpoint", "its tables alone"])
def test_the_lake_goes_on_and_has_each_record_once(
    stack: Stack, tmp_path: Path, former: Mapping[str, str], *, has_checkpoint: bool
) -> None:
    lake = LakeInstance(stack, tmp_path)
    given: dict[str, Any] = dict(former)

    def more(count: int) -> None:
        lake.send(BEHAVIOUR, *[lake.value(BEHAVIOUR, behaviour(f"event {number}")) for number in range(count)])
        lake.send(TRACK, *[lake.value(TRACK, received("track", {"event": f"item {number}"})) for number in range(count)])

    lake.deploy()
    more(300)
    with lake.running(**given) as service:
        lake.settle(service)
        more(500)
        started = psutil.Process(service.process.pid).children(recursive=True)
        service.kill()
        # The JVM ends after the process that has started it, and may write to the checkpoint until then.
        assert not psutil.wait_procs(started, PATIENCE_SECONDS)[1]
    if not has_checkpoint:
        shutil.rmtree(tmp_path / "checkpoints")
    more(200)
    with lake.running() as service:
        lake.settle(service)
        assert service.stop() == 0
    sent = sorted(lake.sent)
    assert lake.places("behaviour_events") == [place for place in sent if place[0] == BEHAVIOUR]
    assert lake.places("ingest_items") == [place for place in sent if place[0] == TRACK]
    lake.remove()


def test_a_view_goes_on_and_counts_each_event_once(stack: Stack, tmp_path: Path, former: Mapping[str, str]) -> None:
    given: dict[str, Any] = dict(former)
    with own_keyspace(stack.cassandra) as cassandra:
        instance = ViewsInstance(stack, cassandra, tmp_path)
        instance.deploy()

        def more(count: int) -> None:
            for number in range(count):
                instance.order(
                    NOON_MS + number, {"product_id": f"p{number % 5}", "revenue": 2, "quantity": 1}, partition=number % 2
                )

        more(100)
        instance.send(b"broken")
        with instance.running(**given) as service:
            instance.settle(service)
            more(100)
            service.kill()
        with instance.running() as service:
            more(50)
            instance.send(instance.codec.header + b"\xff")
            instance.settle(service)
            rows, _ = instance.asked()
            assert service.stop() == 0
        assert instance.letters() == {("bad_framing", "from-a-header"), ("broken_avro", "from-a-header")}
        assert sum(quantity for _, quantity in rows.values()) == 250
        assert [revenue for revenue, _ in rows.values()] == [100] * 5
        instance.remove()


def test_views_that_share_a_query_go_on(stack: Stack, tmp_path: Path, former: Mapping[str, str]) -> None:
    own = tmp_path / "own"
    own.mkdir()
    file = subprocess.run(["git", "show", f"{FROM}:{MORE_VIEWS}"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    (own / "former_more_views.py").write_text(file)
    given: dict[str, Any] = {"PYTHONPATH": os.pathsep.join([former["PYTHONPATH"], str(own)]), "MORE_VIEWS": "regions"}
    with own_keyspace(stack.cassandra) as cassandra:
        instance = ViewsInstance(stack, cassandra, tmp_path)
        instance.deploy()

        def more(count: int) -> None:
            for number in range(count):
                instance.order(NOON_MS + number, {"product_id": "p", "revenue": 2, "quantity": 1}, partition=number % 2)

        more(100)
        with instance.running(module="former_more_views", **given) as service:
            instance.settle(service)
            more(100)
            service.kill()
        names = [one.name for one in (instance.directory / "checkpoints" / "views").iterdir()]
        with instance.running(module=MORE_VIEWS.removesuffix(".py").replace("/", "."), MORE_VIEWS="regions") as service:
            more(50)
            instance.settle(service)
            rows, _ = instance.asked()
            [region] = instance.items("regions")[0]
            assert service.stop() == 0
        assert [one.name for one in (instance.directory / "checkpoints" / "views").iterdir()] == names
        assert list(rows.values()) == [(500, 250)]
        assert (region["orders"], region["revenue"]) == (250, 500)
        instance.remove()
