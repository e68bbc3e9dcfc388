"""The scaler in the chart: its rights, its settings, and the workers that it scales."""

from collections.abc import Mapping
from typing import Any

import pytest

from starling_scaler.settings import ScalerSettings
from tests.helm.rendering import NAMESPACE, Manifest, Workload, environment, named, of_kind, rendered, workloads

ENABLED: Mapping[str, Any] = {"scaler": {"enabled": True}}
FULLNAME = "prod-starling"


def role(manifests: list[Manifest], component: str) -> set[tuple[str, str, tuple[str, ...], tuple[str, ...]]]:
    """Return (group, resource, names, verbs) of each rule that is bound to the account of the component's pods."""
    [pod] = [one for one in workloads(manifests) if one.component == component]
    account = {"kind": "ServiceAccount", "name": pod.spec["serviceAccountName"], "namespace": NAMESPACE}
    bound = [one for one in of_kind(manifests, "RoleBinding") if account in one["subjects"]]
    rules = [rule for one in bound for rule in named(manifests, "Role", one["roleRef"]["name"])["rules"]]
    return {
        (group, resource, tuple(rule.get("resourceNames", ())), tuple(rule["verbs"]))
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def settings_of(values: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch, ci: str = "minimal") -> ScalerSettings:
    manifests = rendered(values, ci)
    [pod] = [one for one in workloads(manifests) if one.component == "scaler"]
    for name, value in environment(pod, manifests, {}).items():
        monkeypatch.setenv(name, value)
    return ScalerSettings()


def test_it_is_off_unless_it_is_asked_for() -> None:
    manifests = rendered()
    assert not [one for one in manifests if "scaler" in one["metadata"]["name"]]
    for one in of_kind(manifests, "StatefulSet"):
        assert "lifecycle" not in Workload(one).container


def test_the_scaler_may_change_the_replicas_of_two_stateful_sets_and_nothing_else_of_them() -> None:
    names = (f"{FULLNAME}-normalizer", f"{FULLNAME}-segmenter")
    assert role(rendered(ENABLED), "scaler") == {
        ("apps", "statefulsets/scale", names, ("get", "update")),
        ("", "pods", (), ("list",)),
        ("", "events", (), ("create",)),
        ("coordination.k8s.io", "leases", (), ("create",)),
        ("coordination.k8s.io", "leases", (f"{FULLNAME}-scaler",), ("get", "update")),
    }


def test_a_worker_may_read_its_own_replicas_alone_and_reads_them_before_it_stops() -> None:
    manifests = rendered(ENABLED)
    for name in ("normalizer", "segmenter"):
        own = f"{FULLNAME}-{name}"
        assert role(manifests, name) == {("apps", "statefulsets/scale", (own,), ("get",))}
        container = Workload(named(manifests, "StatefulSet", own)).container
        command = ["python", "-m", "starling_stream.worker.scaled_in", own]
        assert container["lifecycle"] == {"preStop": {"exec": {"command": command}}}


def test_a_stage_that_is_not_scaled_has_no_right_and_no_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"scaler": {"enabled": True, "normalizer": {"enabled": False}}}
    manifests = rendered(values)
    assert role(manifests, "normalizer") == set()
    normalizer = Workload(named(manifests, "StatefulSet", f"{FULLNAME}-normalizer"))
    assert "lifecycle" not in normalizer.container
    assert normalizer.spec["automountServiceAccountToken"] is False
    assert ("apps", "statefulsets/scale", (f"{FULLNAME}-segmenter",), ("get", "update")) in role(manifests, "scaler")
    assert settings_of(values, monkeypatch).normalizer is None


def test_the_limits_reach_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {
        "profilePartitions": 32,
        "scaler": {
            "enabled": True,
            "dryRun": True,
            "segmenter": {"minReplicas": 3, "maxReplicas": 12},
            "settings": {"STARLING_SEGMENTER__CPU_CORES": 1.5, "STARLING_LEASE_SECONDS": 30},
        },
    }
    settings = settings_of(values, monkeypatch)
    assert (settings.namespace, settings.lease_name) == (NAMESPACE, f"{FULLNAME}-scaler")
    assert (settings.profile_partitions, settings.dry_run, settings.lease_seconds) == (32, True, 30)
    segmenter = settings.segmenter
    assert segmenter is not None
    assert segmenter.stateful_set == f"{FULLNAME}-segmenter"
    assert (segmenter.min_replicas, segmenter.max_replicas, segmenter.cpu_cores) == (3, 12, 1.5)


def test_the_scaler_has_no_credentials_of_the_broker_the_registry_or_cassandra() -> None:
    manifests = rendered(ci="everything")
    [pod] = [one for one in workloads(manifests) if one.component == "scaler"]
    names = environment(pod, manifests, {})
    assert not [name for name in names if name.startswith(("STARLING_KAFKA", "STARLING_REGISTRY", "STARLING_CASSANDRA"))]
    assert [volume["name"] for volume in pod.spec["volumes"]] == ["tmp"]


def test_the_scaler_reaches_the_workers_that_it_reads() -> None:
    manifests = rendered(ci="production")
    scaler = named(manifests, "NetworkPolicy", f"{FULLNAME}-scaler")["spec"]
    [targets] = [rule["to"] for rule in scaler["egress"] if rule["ports"] == [{"port": 8080}]]
    for name in ("normalizer", "segmenter"):
        worker = named(manifests, "NetworkPolicy", f"{FULLNAME}-{name}")["spec"]
        assert {"podSelector": worker["podSelector"]} in targets
        sources = [peer for rule in worker["ingress"] if rule["ports"] == [{"port": 8080}] for peer in rule["from"]]
        assert {"podSelector": scaler["podSelector"]} in sources


def test_without_a_cluster_the_replicas_are_those_of_the_values() -> None:
    manifests = rendered({**ENABLED, "segmenter": {"replicas": 5}})
    assert named(manifests, "StatefulSet", f"{FULLNAME}-segmenter")["spec"]["replicas"] == 5
