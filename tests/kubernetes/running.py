"""A release that really runs: its pods are processes, on a real broker, registry and database. `make test-k8s` runs it."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from email import message_from_bytes
from email.policy import default
from pathlib import Path
from signal import SIGKILL
from typing import Any, Final

import httpx
import pytest
from rich.console import Console

from starling_cli.api_client import ApiClient
from starling_cli.commands.common import pipeline_at
from starling_cli.settle.settle import settle
from starling_common.testing import free_port
from starling_demo.dataset import load_purchases
from starling_demo.mailbox import Mailbox
from starling_demo.run import Platform, perform
from starling_local.testing import Addresses, embedded
from tests.kubernetes.control_plane import ControlPlane, wait_until
from tests.kubernetes.prepared import prepare_namespace
from tests.kubernetes.process_kubelet import Pod, ProcessKubelet, explained
from tests.kubernetes.release import TIMEOUT, Release

NAMESPACE: Final = "marketing"
INGEST: Final = "prod-starling-ingest"
API: Final = "prod-starling-api"
PORT: Final = 8080
WRITE_KEY: Final = "demo-write-key"
TOKEN: Final = "demo-admin-token"
"""Both as in `ci/demo-values.yaml`."""
AUTHORIZED: Final = {"Authorization": f"Bearer {TOKEN}"}
SERVICES: Final = frozenset({"ingest", "normalizer", "segmenter", "projector", "api", "delivery"})
EVERY_SERVICE: Final = SERVICES | {
    "messenger", "broadcaster", "email", "feeds", "audience", "tracker", "scaler", "profiles", "lake",
}  # fmt: skip
"""The components of the chart that are pods all the time."""
STAGES: Final = (SERVICES | {"messenger", "broadcaster", "audience", "tracker", "lake"}) | {
    "delivery-email",
    "delivery-feeds",
    "spark",
}
"""The same by their names in a local instance, by which `starling settle` knows them."""
TRACKER: Final = "https://t.example.com"
EVERYTHING_SECONDS: Final = 1800
"""Of an installation with every component, and until its stages have gone through, on a machine that is busy otherwise."""
MEMBERSHIP_SECONDS: Final = 300.0
"""Long enough for a machine that is busy otherwise; the latency itself is measured by `make bench-latency`."""
SEGMENT: Final = {
    "key": "big-spenders",
    "name": "Big spenders",
    "where": {"event": "Order Completed", "measure": {"sum": "revenue"}, "op": "gte", "value": 200, "within": "180d"},
}


@pytest.fixture(scope="module")
def connections(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Any]]:
    """The values of a release without Spark on a real broker, registry and database, which are still empty."""
    with embedded({"kafka", "registry", "cassandra"}, tmp_path_factory.mktemp("parts")) as found:
        yield {
            **connected(found),
            "spark": {"profiles": {"enabled": False}},
            "normalizer": {"persistence": {"enabled": True}},
            "segmenter": {"persistence": {"enabled": True}},
        }


def connected(parts: Addresses) -> dict[str, Any]:
    """Return the values that connect a release with a broker, a registry and a database."""
    return {
        "kafka": {"brokers": parts.kafka},
        "schemaRegistry": {"url": parts.registry_url},
        "cassandra": {"contactPoints": parts.cassandra_host, "port": parts.cassandra_port},
    }


def everything(parts: Addresses) -> dict[str, Any]:
    """Return the values of a release with every component, the event clock, and the webhooks and mails of this machine."""
    local = {"settings": {"STARLING_ALLOW_PRIVATE_ADDRESSES": True}}
    stage = {"persistence": {"enabled": True}}
    scaled = {"minReplicas": 1, "maxReplicas": 2}
    return {
        **connected(parts),
        "clock": "event",
        "normalizer": stage,
        "segmenter": stage,
        "api": local,
        "delivery": local,
        "messenger": {"enabled": True, "replicas": 1},
        "broadcaster": {"enabled": True},
        "email": {"enabled": True, "replicas": 1, **local},
        "feeds": {"enabled": True, "replicas": 1, **local},
        "audience": {"enabled": True, **local},
        "tracker": {"enabled": True, "replicas": 1, "publicUrl": TRACKER},
        "scaler": {"enabled": True, "replicas": 1, "normalizer": scaled, "segmenter": scaled},
        "spark": {"lake": {"enabled": True}},
    }


class Client:
    """Calls ingest and the API of a release through their Services."""

    def __init__(self, node: ProcessKubelet) -> None:
        self._node = node

    def define(self) -> None:
        """Create the segment."""
        self._call("POST", API, "/v1/segments", SEGMENT, headers=AUTHORIZED)

    def buy(self, user: str) -> None:
        """Send an order that lets the user enter the segment."""
        event = {"userId": user, "event": "Order Completed", "properties": {"revenue": 250}}
        self._call("POST", INGEST, "/v1/track", event, auth=(WRITE_KEY, ""))

    def segments(self, user: str) -> list[str]:
        """Return the segments of a user."""
        answer = self._call("GET", API, f"/v1/users/{user}/segments", headers=AUTHORIZED)
        return [one["segment"] for one in answer["items"]]

    def _call(self, method: str, service: str, path: str, body: object = None, **given: Any) -> Any:
        url = f"http://{self._node.address(NAMESPACE, service)}:{PORT}{path}"
        answer = httpx.request(method, url, json=body, timeout=60, **given)
        assert answer.is_success, answer.text
        return answer.json()


def test_an_event_becomes_a_membership_in_an_installed_release(
    plane: ControlPlane, node: ProcessKubelet, connections: Mapping[str, Any], tmp_path: Path
) -> None:
    release, client = Release(plane, tmp_path, "prod", NAMESPACE), Client(node)
    prepare_namespace(plane.api, NAMESPACE)
    with explained(node):
        release.apply("install", "demo", connections)
        assert set(pods(node)) == SERVICES
        client.define()
        entered(client, "ada")
        assert "Succeeded" in release.helm("test", release.name)

        # A process that dies is started again, in the same pod, and continues.
        [segmenter] = pods(node)["segmenter"]
        assert segmenter.running is not None
        segmenter.running.process.kill()
        wait_until(lambda: status(plane, segmenter) == {"ready": True, "restarts": 1}, "the segmenter's second start")
        assert segmenter.exits == [-SIGKILL]
        entered(client, "grace")

        # An upgrade replaces the pods of every process, each of which stops within its grace period.
        old = alive(node)
        values = {**connections, "logLevel": "WARNING", "segmenter": {"replicas": 2, **connections["segmenter"]}}
        release.apply("upgrade", "demo", values)
        assert_stopped(old)
        assert {name: len(found) for name, found in pods(node).items()} == {**dict.fromkeys(SERVICES, 1), "segmenter": 2}
        entered(client, "mary")

        # A rollback too; the claim of the removed segmenter goes with it, and the other one takes over its partitions.
        old = alive(node)
        release.helm("rollback", release.name, "1", "--wait", "--timeout", TIMEOUT)
        assert_stopped(old)
        wait_until(lambda: claims(plane) == {"state-prod-starling-normalizer-0", "state-prod-starling-segmenter-0"}, "the claims")
        for user in ("barbara", "frances", "jean", "kathleen"):
            entered(client, user)
        assert client.segments("ada") == client.segments("grace") == client.segments("mary") == ["big-spenders"]

        old = alive(node)
        release.helm("uninstall", release.name, "--wait")
        assert_stopped(old)
        assert claims(plane) == {"state-prod-starling-normalizer-0", "state-prod-starling-segmenter-0"}


@pytest.mark.timeout(2 * EVERYTHING_SECONDS)
def test_the_demo_equals_pandas_on_a_release_with_every_component(
    plane: ControlPlane, node: ProcessKubelet, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    release = Release(plane, tmp_path / "helm", "all", "everything")
    purchases = load_purchases()
    prepare_namespace(plane.api, release.namespace)
    with embedded({"kafka", "registry", "cassandra"}, tmp_path / "parts") as parts, explained(node), closing(Mailbox()) as mailbox:
        release.apply("install", "demo", everything(parts), timeout=f"{EVERYTHING_SECONDS}s")
        assert set(pods(node)) == EVERY_SERVICE

        def url(component: str) -> str:
            return f"http://{node.address(release.namespace, f'all-starling-{component}')}:{PORT}"

        with closing(ApiClient(url("api"), TOKEN)) as api, pipeline_at(api, parts.kafka, sorted(STAGES), "event") as pipeline:
            platform = Platform(
                api=api,
                ingest_url=url("ingest"),
                write_key=WRITE_KEY,
                brokers=parts.kafka,
                registry_url=parts.registry_url,
                settle=lambda: settle(pipeline, EVERYTHING_SECONDS),
            )
            with capsys.disabled():
                code = perform(platform, purchases, mailbox, Console(width=160))
        assert code == 0

        # A link of a mail begins with the address of the tracker, whose Service answers it.
        _, mail = mailbox.mails[0]
        plain = message_from_bytes(mail, policy=default).get_body(("plain",))
        found = None if plain is None else re.search(rf"{re.escape(TRACKER)}(/\S+)", plain.get_content())
        assert found is not None, mail
        page = httpx.get(url("tracker") + found[1], timeout=60)
        assert page.is_success, page.text
        assert "unsubscribe" in page.text.lower()

        # The scaler has read the metrics of the workers at the addresses of their pods.
        [scaler] = pods(node)["scaler"]
        text = httpx.get(f"http://{scaler.address}:{PORT}/metrics", timeout=60).text
        series = {
            line.split(" ")[0]: float(line.split(" ")[1]) for line in text.splitlines() if line.startswith("starling_scaler_")
        }
        assert all(series[f'starling_scaler_cpu_cores{{stage="{stage}"}}'] > 0 for stage in ("normalizer", "segmenter")), text

        old = alive(node)
        release.helm("uninstall", release.name, "--wait", "--timeout", TIMEOUT)
        assert_stopped(old)


def test_an_installation_without_a_broker_stops_at_the_deploy_step_which_names_the_cause(
    plane: ControlPlane, node: ProcessKubelet, connections: Mapping[str, Any], tmp_path: Path
) -> None:
    release = Release(plane, tmp_path, "prod", "unreachable")
    prepare_namespace(plane.api, release.namespace)
    values = {**connections, "kafka": {"brokers": f"127.0.0.1:{free_port()}"}, "deploy": {"backoffLimit": 0}}
    with explained(node), pytest.raises(AssertionError, match="pre-install"):
        release.apply("install", "demo", values)
    [deploy] = [pod for pod in node.pods.values() if pod.namespace == release.namespace]
    assert deploy.exits == [1]
    *_, cause = deploy.log.read_text().splitlines()
    assert cause.startswith("deploy: KafkaError")
    assert values["kafka"]["brokers"] in deploy.log.read_text()
    release.helm("uninstall", release.name)


def alive(node: ProcessKubelet) -> list[Pod]:
    """Return the running pods."""
    return [pod for found in pods(node).values() for pod in found]


def assert_stopped(stopped: Sequence[Pod]) -> None:
    """Each of the pods ends, and its process has exited with code 0 after SIGTERM."""
    wait_until(lambda: not any(pod.is_alive() for pod in stopped), "the end of the old pods")
    assert {pod.name: pod.exits[-1] for pod in stopped} == {pod.name: 0 for pod in stopped}


def claims(plane: ControlPlane) -> set[str]:
    """Return the names of the release's claims."""
    found = plane.api.items(f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims")
    return {one["metadata"]["name"] for one in found} - {"checkpoints"}


def pods(node: ProcessKubelet) -> dict[str, list[Pod]]:
    """Return the running pods of each component."""
    found: dict[str, list[Pod]] = {}
    for pod in list(node.pods.values()):
        if pod.running is not None and not pod.stops:
            found.setdefault(pod.manifest["metadata"]["labels"]["app.kubernetes.io/component"], []).append(pod)
    return found


def status(plane: ControlPlane, pod: Pod) -> Mapping[str, Any]:
    """Return what the server has of the pod's container."""
    [found] = plane.api.request("GET", pod.path)["status"]["containerStatuses"]
    return {"ready": found["ready"], "restarts": found["restartCount"]}


def entered(client: Client, user: str) -> None:
    """Send an order of the user, and wait until the API returns the membership."""
    client.buy(user)
    wait_until(lambda: client.segments(user) == ["big-spenders"], f"the membership of {user}", MEMBERSHIP_SECONDS)
