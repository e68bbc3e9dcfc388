"""Spark jobs whose executors are pods that their drivers create. `make test-k8s` runs it."""

import json
import time
from pathlib import Path
from signal import SIGKILL
from typing import Any, Final

import httpx
import psycopg
from pyiceberg.table import StaticTable

from starling_local.postgres import DATABASE, USER, PostgresServer, postgres
from starling_local.testing import embedded
from tests.kubernetes.control_plane import ControlPlane, wait_until
from tests.kubernetes.prepared import prepare_namespace
from tests.kubernetes.process_kubelet import Pod, ProcessKubelet, explained
from tests.kubernetes.release import Release
from tests.kubernetes.running import API, AUTHORIZED, INGEST, NAMESPACE, PORT, WRITE_KEY, assert_stopped, connected, pods

PATIENCE_SECONDS: Final = 300.0
TRAIT: Final = {"key": "spent", "name": "Spent", "event": "Order Completed", "measure": {"sum": "revenue"}}
SEGMENT: Final = {"key": "spenders", "name": "Spenders", "where": {"trait": "computed.spent", "op": "gte", "value": 100}}
EXECUTOR: Final = "profiles-executor"
LAKE: Final = "lake"
"""A namespace."""
PASSWORD: Final = "of-the-catalog"
VIEW: Final = "sales_by_product_region"
BATCH: Final = "batch"
"""A namespace."""
CUSTOMERS: Final = {"key": "customers", "name": "Customers", "where": {"event": "Order Completed"}}
BUYERS: Final = {
    "key": "buyers",
    "name": "Buyers",
    "where": {"event": "Order Completed", "measure": {"sum": "revenue"}, "op": "gte", "value": 100},
}


class Client:
    """Calls ingest and the API of the release through their Services."""

    def __init__(self, node: ProcessKubelet, namespace: str = NAMESPACE) -> None:
        self._node = node
        self._namespace = namespace

    def define(self) -> None:
        """Create the computed trait, and a segment of it."""
        self._call("POST", API, "/v1/computed-traits", TRAIT)
        self._call("POST", API, "/v1/segments", SEGMENT)

    def define_segment(self, body: object) -> None:
        """Create a segment."""
        self._call("POST", API, "/v1/segments", body)

    def members(self, key: str) -> set[str]:
        """Return the members of a segment."""
        return {one["user_id"] for one in self._call("GET", API, f"/v1/segments/{key}/members")["items"]}

    def runs(self) -> list[str]:
        """Return the states of the backfills."""
        return [one["state"] for one in self._call("GET", API, "/v1/backfills")["items"]]

    def buy(self, user: str, revenue: int) -> None:
        """Send an order."""
        properties = {"revenue": revenue, "product_id": "sku-7", "quantity": 1}
        body = {"userId": user, "event": "Order Completed", "properties": properties}
        url = f"http://{self._node.address(self._namespace, INGEST)}:{PORT}/v1/track"
        assert httpx.post(url, json=body, auth=(WRITE_KEY, ""), timeout=60).is_success

    def is_spender(self, user: str) -> bool:
        """Return whether the value of the trait has put the user into the segment."""
        return bool(self._call("GET", API, f"/v1/users/{user}/segments")["items"])

    def revenue(self) -> float:
        """Return the revenue in the rows of the view."""
        answer = self._answer("GET", API, f"/v1/views/{VIEW}")
        return 0.0 if answer.status_code == httpx.codes.NOT_FOUND else sum(row["revenue"] for row in answer.json()["items"])

    def _call(self, method: str, service: str, path: str, body: object = None) -> Any:
        answer = self._answer(method, service, path, body)
        assert answer.is_success, answer.text
        return answer.json()

    def _answer(self, method: str, service: str, path: str, body: object = None) -> httpx.Response:
        url = f"http://{self._node.address(self._namespace, service)}:{PORT}{path}"
        return httpx.request(method, url, json=body, headers=AUTHORIZED, timeout=60)


def test_traits_are_computed_by_executors_in_pods_although_one_dies(
    plane: ControlPlane, node: ProcessKubelet, tmp_path: Path
) -> None:
    release, client = Release(plane, tmp_path / "helm", "prod", NAMESPACE), Client(node)
    prepare_namespace(plane.api, NAMESPACE)
    with embedded({"kafka", "registry", "cassandra"}, tmp_path / "parts", kills_cassandra=False) as parts, explained(node):
        two = {"instances": 2, "cores": 1, "cpu": "100m", "memory": "512m", "memoryOverhead": "512m"}
        profiles = {
            "executors": two,
            # All pods of the test share the files of one machine, as they would share an object store.
            "checkpoints": (tmp_path / "checkpoints").as_uri(),
            "persistence": {"enabled": False},
        }
        release.apply("install", "demo", {**connected(parts), "spark": {"profiles": profiles}})
        client.define()
        wait_until(lambda: len(pods(node).get(EXECUTOR, ())) == 2, "two executors", PATIENCE_SECONDS)
        [driver] = pods(node)["profiles"]
        assert {owner(pod) for pod in pods(node)[EXECUTOR]} == {driver.name}

        client.buy("ada", 150)
        client.buy("grace", 60)
        wait_until(lambda: client.is_spender("ada"), "a value computed by the executors", PATIENCE_SECONDS)
        assert not client.is_spender("grace")

        # The driver creates another pod for an executor that is gone, and the states are those of the checkpoint.
        gone, _ = pods(node)[EXECUTOR]
        assert gone.running is not None
        gone.running.process.send_signal(SIGKILL)
        client.buy("grace", 60)
        wait_until(lambda: client.is_spender("grace"), "a value after the loss of an executor", PATIENCE_SECONDS)
        wait_until(lambda: len(others(node, gone)) == 2, "another executor", PATIENCE_SECONDS)

        old = [driver]
        release.helm("uninstall", release.name, "--wait")
        assert_stopped(old)
        wait_until(lambda: not pods(node).get(EXECUTOR), "the end of the executors", PATIENCE_SECONDS)


def test_the_lake_and_a_view_are_written_by_executors_in_pods_although_each_loses_one(
    plane: ControlPlane, node: ProcessKubelet, tmp_path: Path
) -> None:
    release, client = Release(plane, tmp_path / "helm", "prod", LAKE), Client(node, LAKE)
    prepare_namespace(plane.api, LAKE)
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": LAKE, "name": "lake-keys"}}
    plane.api.create(secret | {"stringData": {"STARLING_LAKE_CATALOG_SECRETS": json.dumps({"jdbc.password": PASSWORD})}})
    with (
        embedded({"kafka", "registry", "cassandra"}, tmp_path / "parts", kills_cassandra=False) as parts,
        postgres(PASSWORD) as database,
        explained(node),
    ):
        small = {"cores": 1, "cpu": "100m", "memory": "512m", "memoryOverhead": "512m"}
        job = {"enabled": True, "checkpoints": (tmp_path / "checkpoints").as_uri(), "persistence": {"enabled": False}}
        url = f"jdbc:postgresql://127.0.0.1:{database.port}/{DATABASE}"
        lake = {
            "executors": {"instances": 2, **small},
            "warehouse": (tmp_path / "warehouse").as_uri(),
            "catalog": {"type": "jdbc", "uri": url, "jdbc.user": USER},
            "envFrom": [{"secretRef": {"name": "lake-keys"}}],
        }
        one = {"executors": {"instances": 1, **small}}
        # Suspended: the test starts it.
        upkeep = {"envFrom": lake["envFrom"], "lakeUpkeep": {"enabled": True, "suspend": True, **one}}
        spark = {"profiles": {"enabled": False}, "lake": job | lake, "views": job | one, "scheduled": upkeep}
        release.apply("install", "demo", {**connected(parts), "spark": spark})
        client.buy("ada", 150)
        wait_until(lambda: bought(database) == ["ada"], "a row in the lake", PATIENCE_SECONDS)
        wait_until(lambda: client.revenue() == 150, "a row of the view", PATIENCE_SECONDS)

        for component, number in (("lake", 2), ("views", 1)):
            gone, *_ = found = pods(node)[f"{component}-executor"]
            assert len(found) == number
            assert gone.running is not None
            gone.running.process.send_signal(SIGKILL)
        client.buy("grace", 60)
        wait_until(lambda: bought(database) == ["ada", "grace"], "a row in the lake after the loss", PATIENCE_SECONDS)
        wait_until(lambda: client.revenue() == 210, "a row of the view after the loss", PATIENCE_SECONDS)

        started(plane, "prod-starling-lake-upkeep", "upkeep-now")
        wait_until(lambda: succeeded(plane, "upkeep-now"), "the end of the maintenance", PATIENCE_SECONDS)
        assert "lake-upkeep-executor" in {component_of(pod) for pod in node.pods.values()}
        assert bought(database) == ["ada", "grace"]

        release.helm("uninstall", release.name, "--wait")
        wait_until(lambda: not pods(node).get("lake-executor"), "the end of the executors", PATIENCE_SECONDS)


def test_the_api_starts_a_backfill_with_executors_in_pods(plane: ControlPlane, node: ProcessKubelet, tmp_path: Path) -> None:
    release, client = Release(plane, tmp_path / "helm", "prod", BATCH), Client(node, BATCH)
    prepare_namespace(plane.api, BATCH)
    with embedded({"kafka", "registry", "cassandra"}, tmp_path / "parts", kills_cassandra=False) as parts, explained(node):
        two = {"instances": 2, "cores": 1, "cpu": "100m", "memory": "512m", "memoryOverhead": "512m"}
        backfill = {"enabled": True, "fromRecords": 1, "executors": two}
        values = {**connected(parts), "spark": {"profiles": {"enabled": False}}, "backfill": backfill}
        release.apply("install", "demo", values)
        client.define_segment(CUSTOMERS)
        for user, revenue in (("ada", 90), ("ada", 60), ("grace", 60)):
            client.buy(user, revenue)
        wait_until(lambda: client.members("customers") == {"ada", "grace"}, "both orders", PATIENCE_SECONDS)

        time.sleep(11)  # sleep: the API asks for the length of the topic once in ten seconds
        # The orders are older than the segment, so that only the backfill can know them.
        client.define_segment(BUYERS)
        wait_until(lambda: client.members("buyers") == {"ada"}, "the history of the segment", PATIENCE_SECONDS)
        assert client.runs() == ["done"]
        ran = {component_of(pod) for pod in node.pods.values() if pod.namespace == BATCH}
        assert {"backfill", "backfill-executor"} <= ran

        client.buy("grace", 60)
        wait_until(lambda: client.members("buyers") == {"ada", "grace"}, "an order after the backfill", PATIENCE_SECONDS)
        release.helm("uninstall", release.name, "--wait")


def started(plane: ControlPlane, schedule: str, name: str) -> None:
    """Start a job of a schedule now."""
    place = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"namespace": LAKE, "name": schedule}}
    template = plane.api.get(place)["spec"]["jobTemplate"]
    plane.api.create(
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"namespace": LAKE, "name": name}, "spec": template["spec"]}
    )


def succeeded(plane: ControlPlane, name: str) -> bool:
    """Return whether a job has succeeded."""
    place = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"namespace": LAKE, "name": name}}
    status = plane.api.get(place).get("status", {})
    assert not status.get("failed"), status
    return bool(status.get("succeeded"))


def component_of(pod: Pod) -> str:
    """Return the component of the chart that a pod belongs to."""
    name: str = pod.manifest["metadata"]["labels"]["app.kubernetes.io/component"]
    return name


def bought(database: PostgresServer) -> list[str]:
    """Return the users of the orders in the lake, sorted, as its catalog has them now."""
    with psycopg.connect(database.uri(), password=database.password) as connection:
        if connection.execute("SELECT to_regclass('iceberg_tables')").fetchone() == (None,):
            return []
        found = connection.execute("SELECT metadata_location FROM iceberg_tables WHERE table_name = 'behaviour_events'").fetchall()
    return sorted(
        user for (location,) in found for user in StaticTable.from_metadata(location).scan().to_arrow()["user_id"].to_pylist()
    )


def others(node: ProcessKubelet, gone: Pod) -> set[str]:
    """Return the names of the running executors without that one."""
    return {pod.name for pod in pods(node).get(EXECUTOR, ())} - {gone.name}


def owner(pod: Pod) -> str:
    """Return the name of the pod with which the cluster removes this one."""
    [found] = pod.manifest["metadata"]["ownerReferences"]
    name: str = found["name"]
    return name
