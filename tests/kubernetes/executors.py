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
from tests.kubernetes.running import API, AUTHORIZED, INGEST, NAMESPACE, PORT, TOKEN, WRITE_KEY, assert_stopped, connected, pods

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
JOBS: Final = "jobs"
"""A namespace."""
TWO: Final = {"instances": 2, "cores": 1, "cpu": "100m", "memory": "512m", "memoryOverhead": "512m"}
"""Executors."""
CUSTOMERS: Final = {"key": "customers", "name": "Customers", "where": {"event": "Order Completed"}}
BUYERS: Final = {
    "key": "buyers",
    "name": "Buyers",
    "where": {"event": "Order Completed", "measure": {"sum": "revenue"}, "op": "gte", "value": 100},
}

FILES: Final = {
    "orders/1.csv": ("user_id,total,sku", "ada,90,sku-7", "grace,60,sku-7"),
    "orders/2.csv": ("user_id,total,sku", "ada,60,sku-8", ",5,sku-8"),
    "visitors/1.csv": ("user_id", "ada", "alan"),
    "products/1.csv": ("sku,price", "sku-7,4.5"),
}
IMPORTS: Final[tuple[dict[str, Any], ...]] = (
    {
        "key": "orders", "format": "csv", "kind": "events", "user_column": "user_id", "event": "Order Completed",
        "columns": {"total": "properties.revenue", "sku": "properties.product_id"},
    },
    {"key": "visitors", "format": "csv", "kind": "lists", "user_column": "user_id", "list_key": "fair"},
    {"key": "products", "format": "csv", "kind": "catalog", "product_column": "sku"},
)  # fmt: skip
HOURLY: Final = {"schedule": "15 * * * *", "timezone": "Europe/Berlin"}
SQL_TRAIT: Final = {
    "key": "spent",
    "sql": "SELECT user_id, sum(CAST(get_json_object(properties, '$.revenue') AS DOUBLE)) AS value FROM events GROUP BY user_id",
    **HOURLY,
}
SQL_VIEW: Final = {
    "key": "prices",
    "sql": "SELECT e.user_id, get_json_object(p.properties, '$.price') AS price FROM events e "
    "JOIN products p ON p.product_id = get_json_object(e.properties, '$.product_id')",
    **HOURLY,
}


class Client:
    """Calls ingest and the API of the release through their Services."""

    def __init__(self, node: ProcessKubelet, namespace: str = NAMESPACE) -> None:
        self._node = node
        self._namespace = namespace

    def define(self) -> None:
        """Create the computed trait, and a segment of it."""
        self.call("POST", "/v1/computed-traits", TRAIT)
        self.define_segment(SEGMENT)

    def define_segment(self, body: object) -> None:
        """Create a segment."""
        self.call("POST", "/v1/segments", body)

    def members(self, key: str) -> set[str]:
        """Return the members of a segment."""
        return {one["user_id"] for one in self.items(f"/v1/segments/{key}/members")}

    def runs(self) -> list[str]:
        """Return the states of the backfills."""
        return [one["state"] for one in self.items("/v1/backfills")]

    def buy(self, user: str, revenue: int) -> None:
        """Send an order."""
        properties = {"revenue": revenue, "product_id": "sku-7", "quantity": 1}
        body = {"userId": user, "event": "Order Completed", "properties": properties}
        url = f"http://{self._node.address(self._namespace, INGEST)}:{PORT}/v1/track"
        assert httpx.post(url, json=body, auth=(WRITE_KEY, ""), timeout=60).is_success

    def is_spender(self, user: str) -> bool:
        """Return whether the value of the trait has put the user into the segment."""
        return SEGMENT["key"] in {one["segment"] for one in self.items(f"/v1/users/{user}/segments")}

    def revenue(self) -> float:
        """Return the revenue in the rows of the view."""
        answer = self._answer("GET", f"/v1/views/{VIEW}")
        return 0.0 if answer.status_code == httpx.codes.NOT_FOUND else sum(row["revenue"] for row in answer.json()["items"])

    def items(self, path: str) -> list[Any]:
        """Return the items of a list of the API."""
        return list(self.call("GET", path)["items"])

    def call(self, method: str, path: str, body: object = None) -> Any:
        """Call the API, and return its answer."""
        answer = self._answer(method, path, body)
        assert answer.is_success, answer.text
        return answer.json()

    def _answer(self, method: str, path: str, body: object = None) -> httpx.Response:
        url = f"http://{self._node.address(self._namespace, API)}:{PORT}{path}"
        return httpx.request(method, url, json=body, headers=AUTHORIZED, timeout=60)


def test_traits_are_computed_by_executors_in_pods_although_one_dies(
    plane: ControlPlane, node: ProcessKubelet, tmp_path: Path
) -> None:
    release, client = Release(plane, tmp_path / "helm", "prod", NAMESPACE), Client(node)
    prepare_namespace(plane.api, NAMESPACE)
    with embedded({"kafka", "registry", "cassandra"}, tmp_path / "parts", kills_cassandra=False) as parts, explained(node):
        profiles = {
            "executors": TWO,
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
    lake_keys = secret(plane, LAKE, STARLING_LAKE_CATALOG_SECRETS=json.dumps({"jdbc.password": PASSWORD}))
    with (
        embedded({"kafka", "registry", "cassandra"}, tmp_path / "parts", kills_cassandra=False) as parts,
        postgres(PASSWORD) as database,
        explained(node),
    ):
        job = {"enabled": True, "checkpoints": (tmp_path / "checkpoints").as_uri(), "persistence": {"enabled": False}}
        lake = {"executors": TWO, "envFrom": lake_keys, **lake_in(tmp_path, database)}
        one = {"executors": TWO | {"instances": 1}}
        # Suspended: the test starts it.
        upkeep = {"envFrom": lake_keys, "lakeUpkeep": {"enabled": True, "suspend": True, **one}}
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
        backfill = {"enabled": True, "fromRecords": 1, "executors": TWO}
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


def test_the_api_starts_imports_and_runs_in_sql_with_executors_in_pods(
    plane: ControlPlane, node: ProcessKubelet, tmp_path: Path
) -> None:
    release, client, files = Release(plane, tmp_path / "helm", "prod", JOBS), Client(node, JOBS), tmp_path / "files"
    prepare_namespace(plane.api, JOBS)
    secrets = {
        "STARLING_LAKE_CATALOG_SECRETS": json.dumps({"jdbc.password": PASSWORD}),
        "STARLING_IMPORTS_WRITE_KEYS": f"{WRITE_KEY}=default",
        "STARLING_IMPORTS_API_TOKENS": f"{TOKEN}=default",
    }
    keys = {"envFrom": secret(plane, JOBS, **secrets)}
    written(files)
    with (
        embedded({"kafka", "registry", "cassandra"}, tmp_path / "parts", kills_cassandra=False) as parts,
        postgres(PASSWORD) as database,
        explained(node),
    ):
        lake = {"enabled": True, "checkpoints": (tmp_path / "checkpoints").as_uri(), "persistence": {"enabled": False}}
        values = {
            **connected(parts),
            "spark": {"profiles": {"enabled": False}, "lake": {**lake, **keys, **lake_in(tmp_path, database)}},
            "imports": {"enabled": True, "roots": files.as_uri(), "executors": TWO, **keys},
            "sqlTraits": {"enabled": True, "executors": TWO, **keys},
        }
        release.apply("install", "demo", values)
        client.call("PUT", "/v1/lists/fair")
        client.define_segment(BUYERS)
        for body in IMPORTS:
            client.call("POST", "/v1/imports", {**body, "uri": f"{files.as_uri()}/{body['key']}"})
        wait_until(lambda: {one["state"] for one in client.items("/v1/imports")} == {"done"}, "the imports", PATIENCE_SECONDS)
        for body, counts in zip(IMPORTS, ((3, 1), (2, 0), (1, 0)), strict=True):
            shown = client.call("GET", f"/v1/imports/{body['key']}")
            assert (shown["accepted"], shown["rejected"]) == counts, shown
        assert {one["user_id"] for one in client.items("/v1/lists/fair/members")} == {"ada", "alan"}
        wait_until(lambda: client.members("buyers") == {"ada"}, "the imported orders", PATIENCE_SECONDS)
        wait_until(lambda: bought(database) == ["ada", "ada", "grace"], "the orders in the lake", PATIENCE_SECONDS)

        client.call("POST", "/v1/computed-traits", SQL_TRAIT)
        client.call("POST", "/v1/views", SQL_VIEW)
        client.define_segment(SEGMENT)
        wait_until(lambda: client.is_spender("ada"), "a value of the trait", PATIENCE_SECONDS)
        wait_until(lambda: client.call("GET", f"/v1/views/{SQL_VIEW['key']}")["status"] == "active", "a run", PATIENCE_SECONDS)
        assert not client.is_spender("grace")
        assert table(database, SQL_VIEW["key"]) == [{"user_id": "ada", "price": "4.5"}, {"user_id": "grace", "price": "4.5"}]
        ran = {component_of(pod) for pod in node.pods.values() if pod.namespace == JOBS}
        assert {"imports", "imports-executor", "sql-traits", "sql-traits-executor"} <= ran
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


def secret(plane: ControlPlane, namespace: str, **content: str) -> list[dict[str, Any]]:
    """Create a secret, and return the values that give its content to a container."""
    name = "keys-of-the-jobs"
    place = {"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": namespace, "name": name}}
    plane.api.create(place | {"stringData": content})
    return [{"secretRef": {"name": name}}]


def lake_in(directory: Path, database: PostgresServer) -> dict[str, Any]:
    """Return the values of a lake with its catalog in PostgreSQL."""
    url = f"jdbc:postgresql://127.0.0.1:{database.port}/{DATABASE}"
    catalog = {"type": "jdbc", "uri": url, "jdbc.user": USER}
    return {"warehouse": (directory / "warehouse").as_uri(), "catalog": catalog}


def written(directory: Path) -> None:
    """Write the files of the imports, each in a directory of its own."""
    for name, lines in FILES.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines) + "\n")


def bought(database: PostgresServer) -> list[str]:
    """Return the users of the orders in the lake, sorted, as its catalog has them now."""
    return sorted(row["user_id"] for row in table(database, "behaviour_events"))


def table(database: PostgresServer, name: str) -> list[dict[str, Any]]:
    """Return the rows of a table of the lake, sorted; none without the table."""
    with psycopg.connect(database.uri(), password=database.password) as connection:
        if connection.execute("SELECT to_regclass('iceberg_tables')").fetchone() == (None,):
            return []
        found = connection.execute("SELECT metadata_location FROM iceberg_tables WHERE table_name = %s", (name,)).fetchall()
    rows = [row for (location,) in found for row in StaticTable.from_metadata(location).scan().to_arrow().to_pylist()]
    return sorted(rows, key=str)


def others(node: ProcessKubelet, gone: Pod) -> set[str]:
    """Return the names of the running executors without that one."""
    return {pod.name for pod in pods(node).get(EXECUTOR, ())} - {gone.name}


def owner(pod: Pod) -> str:
    """Return the name of the pod with which the cluster removes this one."""
    [found] = pod.manifest["metadata"]["ownerReferences"]
    name: str = found["name"]
    return name
