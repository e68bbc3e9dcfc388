"""Scalers against a real API server, with the rights of the chart: `pytest tests/kubernetes/scaling.py`. Not in `make test`.

A control plane without containers is needed in `~/.cache/starling/tools`. The StatefulSet and its pods are real objects. The
processes in the pods are pretended: each serves the metrics of a worker.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from signal import SIGCONT, SIGSTOP
from typing import Any, Final
from zlib import crc32

import httpx
import pytest
import yaml
from kubernetes import client, config
from prometheus_client.parser import text_string_to_metric_families

from starling_common.testing import free_port
from starling_local.stack.supervision.process import spawn
from starling_scaler.cluster import Cluster, Conflict, KubernetesUnavailable, connected
from starling_stream.worker import scaled_in
from tests.helm.rendering import CHART, RELEASE, helm, of_kind, rendered
from tests.kubernetes.control_plane import wait_until
from tests.kubernetes.scaler_cluster import PARTITIONS, ControlPlane, Installation, control_plane, installation
from tests.processes import end

FULLNAME: Final = f"{RELEASE}-starling"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with control_plane(tmp_path_factory.mktemp("kubernetes")) as found:
        yield found


@pytest.fixture
def installed(plane: ControlPlane, request: pytest.FixtureRequest) -> Iterator[Installation]:
    """The segmenter with two workers, and the rights of the scaler, as the chart has them."""
    values: dict[str, Any] = {
        "scaler": {"enabled": True, "normalizer": {"enabled": False}, "segmenter": {"maxReplicas": PARTITIONS}},
        "profilePartitions": PARTITIONS,
        "normalizer": {"enabled": False},
    }
    # A namespace for each test; the chart is rendered for another one.
    namespace = f"test-{crc32(request.node.name.encode())}"
    found = []
    for one in of_kind(rendered(values), "ServiceAccount", "Role", "RoleBinding", "StatefulSet"):
        if one["metadata"]["labels"]["app.kubernetes.io/component"] in {"segmenter", "scaler"}:
            manifest = dict(one, metadata={**one["metadata"], "namespace": namespace})
            if one["kind"] == "RoleBinding":
                manifest["subjects"] = [{**subject, "namespace": namespace} for subject in one["subjects"]]
            found.append(manifest)
    with installation(plane, namespace, found, FULLNAME) as ready:
        yield ready


@dataclass
class Scaler:
    """A running scaler."""

    name: str
    port: int
    process: subprocess.Popen[bytes]
    log: Path

    def ready(self) -> httpx.Response:
        return httpx.get(f"http://127.0.0.1:{self.port}/readyz", timeout=5)

    def is_ready(self) -> bool:
        try:
            return self.ready().is_success
        except httpx.HTTPError:
            return False

    def value(self, metric: str, **labels: str) -> float:
        """Return the sum of the series with these labels."""
        text = httpx.get(f"http://127.0.0.1:{self.port}/metrics", timeout=5).text
        return sum(
            one.value
            for family in text_string_to_metric_families(text)
            for one in family.samples
            if one.name == metric and labels.items() <= one.labels.items()
        )


@contextmanager
def scalers(installed: Installation, tmp_path: Path, *names: str) -> Iterator[list[Scaler]]:
    """Yield running scalers with the token of the chart's service account, which decide several times a second."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(installed.plane.access(installed.token("scaler")))
    running: list[Scaler] = []
    try:
        for name in names:
            port = free_port()
            environment = {
                "STARLING_HTTP__PORT": str(port),
                "STARLING_INSTANCE_ID": name,
                "STARLING_NAMESPACE": installed.namespace,
                "STARLING_LEASE_NAME": f"{FULLNAME}-scaler",
                "STARLING_PROFILE_PARTITIONS": str(PARTITIONS),
                "STARLING_KUBECONFIG": str(kubeconfig),
                "STARLING_SEGMENTER__STATEFUL_SET": installed.stateful_set,
                "STARLING_SEGMENTER__MAX_REPLICAS": str(PARTITIONS),
                "STARLING_SEGMENTER__LAG_RECORDS": "100",
                "STARLING_INTERVAL_SECONDS": "0.3",
                "STARLING_WINDOW_SECONDS": "1",
                "STARLING_COOL_DOWN_SECONDS": "1",
                "STARLING_CALM_SECONDS": "2",
                "STARLING_LEASE_SECONDS": "4",
            }
            log = tmp_path / f"{name}.log"
            running.append(Scaler(name, port, spawn([sys.executable, "-m", "starling_scaler"], environment, log), log))
        for one in running:
            wait_until(one.is_ready, f"{one.name} is ready")
        yield running
    finally:
        for one in running:
            end(one.process)


def leader(installed: Installation, running: list[Scaler]) -> Scaler:
    """Return the scaler that holds the Lease."""
    wait_until(lambda: installed.holder() in {one.name for one in running}, "one of them leads")
    [found] = [one for one in running if one.name == installed.holder()]
    wait_until(lambda: found.value("starling_scaler_leader") == 1, "it acts")
    return found


def test_one_of_two_leads_and_the_replicas_follow_the_lag_out_and_in(installed: Installation, tmp_path: Path) -> None:
    with scalers(installed, tmp_path, "scaler-a", "scaler-b") as running:
        first = leader(installed, running)
        [second] = [one for one in running if one is not first]
        wait_until(lambda: first.value("starling_scaler_decisions_total", reason="steady") > 0, "the load is measured")
        assert installed.replicas() == 2

        installed.load.growth = 500.0
        wait_until(lambda: installed.replicas() == 4, "two more workers", 90)
        wait_until(lambda: len(installed.node.workers) == 4, "their pods run")
        installed.load.growth, installed.load.cpu = 0.0, 0.05
        installed.node.catch_up()
        peak = installed.replicas()
        wait_until(lambda: installed.replicas() == 2, "back to the minimum", 90)
        wait_until(lambda: len(installed.node.workers) == 2, "the pods of the others are gone")

        steps = [
            (reason, message.partition(" replicas")[0]) for reason, message in installed.events() if reason.startswith("Scaled")
        ]
        out = [("ScaledOut", f"{number} to {number + 1}") for number in range(2, max(4, peak))]
        back = [("ScaledIn", f"{number} to {number - 1}") for number in range(max(4, peak), 2, -1)]
        assert sorted(steps) == sorted(out + back)
        assert first.value("starling_scaler_decisions_total", action="out") == len(out)
        assert first.value("starling_scaler_decisions_total", action="in") == len(back)
        assert second.value("starling_scaler_decisions_total") == 0
        assert second.value("starling_scaler_leader") == 0


def test_no_step_is_taken_while_a_restore_runs(installed: Installation, tmp_path: Path) -> None:
    installed.load.restoring, installed.load.growth = True, 500.0
    with scalers(installed, tmp_path, "scaler-a") as [one]:
        restores = {"action": "hold", "reason": "restore"}
        wait_until(lambda: one.value("starling_scaler_decisions_total", **restores) >= 20, "twenty decisions")
        assert installed.replicas() == 2
        assert one.value("starling_scaler_decisions_total", action="out") == 0
        assert one.value("starling_scaler_blocked", reason="restore") == 1
        assert {reason for reason, _ in installed.events()} == {"ScalingWaits"}
        installed.load.restoring = False
        wait_until(lambda: installed.replicas() == 3, "the step that was due")


def test_another_scaler_takes_over_from_a_killed_one(installed: Installation, tmp_path: Path) -> None:
    with scalers(installed, tmp_path, "scaler-a", "scaler-b") as running:
        first = leader(installed, running)
        [second] = [one for one in running if one is not first]
        first.process.kill()
        first.process.wait()
        wait_until(lambda: installed.holder() == second.name, "the Lease is taken")
        installed.load.growth = 500.0
        wait_until(lambda: installed.replicas() == 3, "the second one acts")
        assert second.value("starling_scaler_decisions_total", action="out") >= 1


def test_without_the_api_server_nothing_happens_and_the_scaler_names_it(installed: Installation, tmp_path: Path) -> None:
    with scalers(installed, tmp_path, "scaler-a") as [one]:
        leader(installed, [one])
        installed.plane.stop_api_server()
        try:
            wait_until(lambda: not one.is_ready(), "readiness fails")
            installed.load.growth = 500.0
            wait_until(lambda: one.value("starling_scaler_leader") == 0, "it acts no longer")
            checks = one.ready().json()["checks"]
            assert "the API server gives no answer" in checks["kubernetes"]
            assert one.value("starling_scaler_blocked", stage="segmenter", reason="kubernetes") == 1
            assert "kubernetes_unavailable" in one.log.read_text()
            assert httpx.get(f"http://127.0.0.1:{one.port}/healthz", timeout=5).is_success, "a restart would not help"
        finally:
            # The replicas are read before the scaler acts again.
            one.process.send_signal(SIGSTOP)
            try:
                installed.plane.start_api_server()
                replicas = installed.replicas()
            finally:
                one.process.send_signal(SIGCONT)
        assert replicas == 2
        wait_until(one.is_ready, "it is ready again")
        wait_until(lambda: installed.replicas() == 3, "it acts again")


def test_the_rights_of_the_chart_and_the_version_of_the_stateful_set_limit_a_scaler(
    installed: Installation, tmp_path: Path
) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(installed.plane.access(installed.token("scaler")))
    cluster = Cluster(connected(kubeconfig), installed.namespace, "scaler-a")
    scale = cluster.scale(installed.stateful_set)
    assert (scale.replicas, scale.uid != "") == (2, True)

    def is_set() -> bool:
        nonlocal scale
        scale = cluster.scale(installed.stateful_set)
        try:
            cluster.set_replicas(scale, 3)
        except Conflict:  # the controller reports the status of new pods meanwhile
            return False
        return True

    wait_until(is_set, "a version that is up to date")
    with pytest.raises(Conflict):
        cluster.set_replicas(scale, 4)
    assert installed.replicas() == 3
    with pytest.raises(KubernetesUnavailable, match="403 Forbidden"):
        cluster.scale("other")
    with pytest.raises(KubernetesUnavailable, match="403 Forbidden"):
        cluster.lease("other")
    with pytest.raises(client.ApiException, match="403"):
        client.AppsV1Api(connected(kubeconfig)).delete_namespaced_stateful_set(installed.stateful_set, installed.namespace)


def test_a_stopping_worker_leaves_its_group_only_after_a_scale_in(installed: Installation, tmp_path: Path) -> None:
    account = tmp_path / "serviceaccount"
    account.mkdir()
    (account / "token").write_text(installed.token("segmenter"))
    (account / "namespace").write_text(installed.namespace)
    (account / "ca.crt").write_bytes(installed.plane.certificate.read_bytes())
    server = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(installed.plane.port)}
    left: list[str] = []

    def stop(pod: str, stateful_set: str = installed.stateful_set) -> int:
        environment = {**server, "STARLING_INSTANCE_ID": pod}
        return scaled_in.main([stateful_set], environment, account, lambda: left.append(pod))

    pods = [f"{installed.stateful_set}-{number}" for number in range(4)]
    assert [stop(pod) for pod in pods] == [0, 0, 0, 0]
    assert left == pods[2:]
    client.AppsV1Api(installed.api).patch_namespaced_stateful_set_scale(
        installed.stateful_set, installed.namespace, {"spec": {"replicas": 0}}
    )
    left.clear()
    assert stop(pods[0]) == 0
    assert left == pods[:1]
    left.clear()
    assert (stop(pods[0], "other"), left) == (1, []), "a worker may read its own StatefulSet alone"


@pytest.mark.parametrize("major", [3, 4])
def test_an_upgrade_keeps_the_replicas_that_the_scaler_has_set(plane: ControlPlane, tmp_path: Path, major: int) -> None:
    namespace = f"upgrade-{major}"
    api: Any = config.new_client_from_config(str(plane.kubeconfig))  # type: ignore[no-untyped-call]
    client.CoreV1Api(api).create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=namespace)))
    apps: Any = client.AppsV1Api(api)
    values = tmp_path / "values.yaml"

    def apply(command: str, given: dict[str, Any], *more: str) -> dict[str, int]:
        values.write_text(yaml.safe_dump(given))
        files = ("--values", str(CHART / "ci/minimal-values.yaml"), "--values", str(values))
        where = ("--namespace", namespace, "--kubeconfig", str(plane.kubeconfig), "--no-hooks")
        done = helm(command, RELEASE, str(CHART), *files, *where, *more, major=major)
        assert done.returncode == 0, done.stderr
        found = apps.list_namespaced_stateful_set(namespace).items
        return {one.metadata.name.rpartition("-")[2]: one.spec.replicas for one in found}

    assert apply("install", {}) == {"normalizer": 2, "segmenter": 2}
    scaled = {"scaler": {"enabled": True, "normalizer": {"enabled": False}}}
    assert apply("upgrade", scaled) == {"normalizer": 2, "segmenter": 2}
    for replicas in (5, 6):
        apps.patch_namespaced_stateful_set_scale(f"{FULLNAME}-segmenter", namespace, {"spec": {"replicas": replicas}})
        assert apply("upgrade", {**scaled, "logLevel": "WARNING"})["segmenter"] == replicas
    # Helm 4 applies on the server, where the field belongs to the client that changed it last.
    forced = ["--force-conflicts"] if major == 4 else []
    assert apply("upgrade", {"segmenter": {"replicas": 3}}, *forced)["segmenter"] == 3, "without the scaler"
    api.close()
