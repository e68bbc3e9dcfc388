"""The job `views` as a process, on a real broker, registry and Cassandra; what it wrote is asked for as the API does."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import httpx
import pytest

from starling_common.kafka.topics import BEHAVIOUR
from starling_common.testing import eventually, own_keyspace
from tests.conftest import Stack
from tests.integration.spark.lake_instance import PATIENCE_SECONDS
from tests.integration.spark.views_instance import ViewsInstance
from tests.lineage_receiver import in_file, places, rows_of

HOUR_MS = 3_600_000
NOON_MS = 1_700_049_600_000


@pytest.fixture
def instance(stack: Stack, tmp_path: Path) -> Iterator[ViewsInstance]:
    with own_keyspace(stack.cassandra) as cassandra:
        made = ViewsInstance(stack, cassandra, tmp_path)
        made.deploy()
        yield made
        made.remove()


@pytest.mark.long
def test_the_life_of_a_view(instance: ViewsInstance) -> None:
    instance.order(NOON_MS, {"product_id": "p", "revenue": 10, "quantity": 2})
    instance.order(
        NOON_MS + 7 * HOUR_MS, {"products": [{"product_id": "p", "price": 0.1}, {"product_id": "q", "price": 2}]}, partition=1
    )
    instance.send(b"broken")
    instance.order(NOON_MS, {"product_id": "poison", "revenue": 3, "quantity": 1})
    # The first process ends at the order that makes the view raise; the next one finds it.
    lines = (instance.directory / "lineage.jsonl").as_uri()
    with instance.running(ready=False, STARLING_FAILPOINT="raise_in_rows:poison", STARLING_LINEAGE__URL=lines) as failing:
        assert eventually(failing.process.poll, PATIENCE_SECONDS) not in {None, 0}
    with instance.running(STARLING_FAILPOINT="raise_in_rows:poison", STARLING_LINEAGE__URL=lines) as service:
        instance.settle(service)
        noon, evening = "2023-11-15T12:00:00.000Z", "2023-11-15T18:00:00.000Z"
        first = {(noon, "p", "Berlin"): (10, 2), (evening, "p", "Berlin"): (0.1, 1), (evening, "q", "Berlin"): (2, 1)}
        assert instance.asked() == (first, "2023-11-15T12:00:00.000Z")
        # A day later, then a late order for the first window, then another region.
        instance.order(NOON_MS + 24 * HOUR_MS, {"product_id": "p", "revenue": 1})
        instance.settle(service)
        instance.order(NOON_MS + 1, {"product_id": "p", "revenue": 0.5, "quantity": 1})
        instance.order(NOON_MS + 2, {"product_id": "p", "revenue": 7}, region="CA")
        instance.settle(service)
        rows, as_of = instance.asked()
        tomorrow = "2023-11-16T12:00:00.000Z"
        later = {(noon, "p", "Berlin"): (10.5, 3), (noon, "p", "CA"): (7, 1), (tomorrow, "p", "Berlin"): (1, 1)}
        assert (rows, as_of) == (first | later, "2023-11-15T19:00:00.000Z")
        metrics = httpx.get(f"{service.url}/metrics", trust_env=False).text
        assert 'starling_spark_query_refused_total{code="poison",query="sales_by_product_region"} 1.0' in metrics
        assert instance.letters() == {("bad_framing", "from-a-header"), ("poison", "from-a-header")}
        assert 'starling_spark_query_state_rows{query="sales_by_product_region"} 5.0' in metrics
        assert service.stop() == 0
    _its_runs_are_reported(instance)


MORE_VIEWS = "tests.integration.spark.more_views"


@pytest.mark.long
def test_views_share_a_query_and_one_that_is_added_later_has_its_own(instance: ViewsInstance) -> None:
    noon, products = "2023-11-15T12:00:00.000Z", [{"product_id": "p", "price": 0.1}, {"product_id": "q", "price": 2}]
    instance.order(NOON_MS, {"product_id": "p", "revenue": 10, "quantity": 2})
    instance.order(NOON_MS + 1, {"products": products}, partition=1, region="CA")
    instance.order(NOON_MS, {"product_id": "poison", "revenue": 3, "quantity": 1})
    poisoned = partial(instance.running, module=MORE_VIEWS, MORE_VIEWS="regions", STARLING_FAILPOINT="raise_in_rows:poison")
    with poisoned(ready=False) as failing:
        assert eventually(failing.process.poll, PATIENCE_SECONDS) not in {None, 0}
    with poisoned() as service:
        instance.settle(service)
        sold = {(noon, "p", "Berlin"): (10, 2), (noon, "p", "CA"): (0.1, 1), (noon, "q", "CA"): (2, 1)}
        assert instance.asked() == (sold, "2023-11-15T12:00:00.000Z")
        assert _by_region(instance) == {("Berlin", 1, 10), ("CA", 1, 0)}
        assert instance.items("regions")[1] == "2023-11-15T12:00:00.000Z"
        assert instance.letters() == {("poison", "from-a-header")}
        service.process.kill()
    [together] = _checkpoints(instance)
    instance.order(NOON_MS + 2, {"product_id": "q", "revenue": 7}, region="CA")
    with instance.running(MORE_VIEWS="regions,names", module=MORE_VIEWS) as service:
        instance.settle(service)
        assert instance.asked()[0] == sold | {(noon, "q", "CA"): (9, 2)}
        assert _by_region(instance) == {("Berlin", 1, 10), ("CA", 2, 7)}
        # That view is not computed by the query that has left the record out.
        assert [(one["event"], one["events"]) for one in instance.items("names")[0]] == [("Order Completed", 4)]
        metrics = httpx.get(f"{service.url}/metrics", trust_env=False).text
        assert 'starling_spark_query_state_rows{query="regions+sales_by_product_region"} 5.0' in metrics
        assert 'starling_views_rows_total{view="regions"} 1.0' in metrics
        assert service.stop() == 0
    assert sorted(name.partition("-v1-")[0] for name in _checkpoints(instance)) == ["names", together]
    instance.order(NOON_MS + 3, {"product_id": "q", "revenue": 1}, region="CA")
    with instance.running() as service:
        instance.settle(service)
        assert instance.asked()[0] == sold | {(noon, "q", "CA"): (10, 3)}
        assert service.stop() == 0


def _by_region(instance: ViewsInstance) -> set[tuple[str, float, float]]:
    return {(one["region"], one["orders"], one["revenue"]) for one in instance.items("regions")[0]}


def _checkpoints(instance: ViewsInstance) -> list[str]:
    directories = (instance.directory / "checkpoints" / "views").iterdir()
    return [path.name for path in directories if not path.name.startswith("refusals-")]


def _its_runs_are_reported(instance: ViewsInstance) -> None:
    events = in_file(instance.directory / "lineage.jsonl")
    assert {one["job"]["name"] for one in events} == {"views.sales_by_product_region"}
    ends = [one for one in events if one["eventType"] not in {"START", "RUNNING"}]
    assert [one["eventType"] for one in ends] == ["FAIL", "COMPLETE"]
    assert "StreamingQueryException" in ends[0]["run"]["facets"]["errorMessage"]["message"]
    assert places(ends[1]["inputs"]) == [(f"kafka://{instance.stack.brokers}", instance.prefix + BEHAVIOUR)]
    assert sum(one["offset"] for one in ends[1]["inputs"][0]["inputFacets"]["starling_positions"]["partitions"]) == sum(
        instance.ends.values()
    )
    assert (rows_of(ends[1])[f"{instance.cassandra.keyspace}.view_rows"] or 0) >= 5
    assert "Berlin" not in str(events)
