"""The chart on a real API server: installed, upgraded, rolled back, tested, uninstalled, by Helm 3 and 4: `make test-k8s`."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from tests.helm.rendering import CI, started
from tests.kubernetes.api import Api, Manifest, Refused
from tests.kubernetes.control_plane import ROOT, ControlPlane, NotReady, wait_until
from tests.kubernetes.kubelet import PretendKubelet
from tests.kubernetes.prepared import prepare_namespace
from tests.kubernetes.release import CHART, TIMEOUT, Identity, Release, stored

FIRST_CHART: Final = "d5a29dc"
"""The commit with the first chart that installs every process. No release has a tag yet; the chart of the last one replaces it."""


@pytest.fixture(params=[*((ci, 3) for ci in CI), ("minimal", 4), ("everything", 4)], ids=lambda param: f"{param[0]}-helm{param[1]}")
def case(request: pytest.FixtureRequest, plane: ControlPlane, kubelet: PretendKubelet, home: Path) -> tuple[Release, str]:
    """A release of its own in a namespace of its own, and the file of `ci/` for it."""
    ci, major = request.param
    namespace = f"{ci}-{major}"
    prepare_namespace(plane.api, namespace)
    return Release(plane, home, "prod", namespace, major), ci


def test_a_release_is_installed_changed_rolled_back_tested_and_removed(case: tuple[Release, str]) -> None:
    release, ci = case
    api = release.plane.api
    before = stored(api)

    release.apply("install", ci)
    assert_ready(release)
    level = release.setting("ingest", "STARLING_LOG_LEVEL")
    keys = generated_keys(release)
    assert len(keys) == (ci != "everything")

    release.apply("upgrade", ci, {"logLevel": "WARNING"})
    assert release.setting("ingest", "STARLING_LOG_LEVEL") == "WARNING"
    assert level != "WARNING"
    assert generated_keys(release) == keys
    assert_ready(release)

    release.helm("rollback", release.name, "--wait", "--timeout", TIMEOUT)
    assert release.setting("ingest", "STARLING_LOG_LEVEL") == level
    assert_ready(release)

    assert "Succeeded" in release.helm("test", release.name)

    release.helm("uninstall", release.name, "--wait")
    kept = expected_to_stay(release, ci)
    try:
        wait_until(lambda: stored(api) == before | kept, "the removal of the release")
    except NotReady:
        assert stored(api) == before | kept
        raise


def generated_keys(release: Release) -> list[str]:
    """Return the keys of the secret that encrypts others, if the chart has generated it."""
    secrets = release.plane.api.items(f"/api/v1/namespaces/{release.namespace}/secrets")
    return [one["data"]["keys"] for one in secrets if one["metadata"]["name"].endswith("-secret-keys")]


def assert_ready(release: Release) -> None:
    """Each workload has all its pods, ready and of the current revision: soon, because an autoscaler may just have changed it."""
    try:
        wait_until(lambda: not unready(release), "all pods")
    except NotReady:
        assert unready(release) == {}
        raise


def unready(release: Release) -> dict[str, str]:
    """Return what is wrong with each workload."""
    workloads = release.workloads()
    assert workloads
    wrong = {}
    for one in workloads:
        name, spec = one["metadata"]["name"], one["spec"]
        pods = release.pods_of(one)
        ready = [pod for pod in pods if ("Ready", "True") in {(c["type"], c["status"]) for c in pod["status"]["conditions"]}]
        if not len(ready) == len(pods) == spec["replicas"]:
            wrong[name] = f"{len(pods)} pods, of which {len(ready)} are ready, instead of {spec['replicas']}"
        outdated = (spec.get("updateStrategy", {}).get("rollingUpdate") or {}).get("partition", 0)
        checksum = spec["template"]["metadata"]["annotations"]["checksum/config"]
        current = [pod for pod in pods if pod["metadata"]["annotations"]["checksum/config"] == checksum]
        if len(current) < spec["replicas"] - outdated:
            wrong[name] = f"{len(current)} of {len(pods)} pods have the current configuration"
    return wrong


def expected_to_stay(release: Release, ci: str) -> set[Identity]:
    """Claims, which have the state of the workers and the offsets of Spark, the two Jobs of hooks, which remove themselves, and the
    key of secrets.
    """
    rendered = release.rendered(ci)
    policies = {(one["kind"], one["metadata"]["name"]): one["metadata"].get("annotations", {}) for one in rendered}
    kept = {(one["kind"], one["metadata"]["name"]) for one in rendered if one["kind"] in {"PersistentVolumeClaim", "Job"}}
    kept |= {place for place, found in policies.items() if found.get("helm.sh/resource-policy") == "keep"}
    for one in rendered:
        for claim in one["spec"].get("volumeClaimTemplates", ()) if one["kind"] == "StatefulSet" else ():
            for number in range(one["spec"]["replicas"]):
                name = f"{claim['metadata']['name']}-{one['metadata']['name']}-{number}"
                kept.add(("PersistentVolumeClaim", name))
        if one["kind"] == "Job":
            assert one["spec"]["ttlSecondsAfterFinished"] > 0
    return {(release.namespace, kind, name) for kind, name in kept}


def dry_run(api: Api, manifest: Manifest) -> None:
    """Let the server validate an object strictly, with defaults and admission, and store nothing. Raises: Refused."""
    api.create(manifest, dryRun="All", fieldValidation="Strict")


@pytest.mark.parametrize("ci", CI)
def test_the_server_accepts_every_object_without_unknown_fields(ci: str, plane: ControlPlane, home: Path) -> None:
    release = Release(plane, home, "prod", f"dry-{ci}")
    prepare_namespace(plane.api, release.namespace)
    manifests = release.rendered(ci)
    manifests += started(manifests)
    refused = []
    plane.api.warnings.clear()
    for one in manifests:
        try:
            dry_run(plane.api, one)
        except Refused as answer:
            refused.append(f"{one['kind']} {one['metadata']['name']}: {answer}")
    assert refused == []
    assert plane.api.warnings == [], "deprecated versions and fields, and pods that the namespace would refuse"
    if ci == "everything":
        assert {"ScaledObject", "ServiceMonitor", "PrometheusRule", "HTTPRoute"} <= {one["kind"] for one in manifests}


@pytest.mark.parametrize(
    ("kind", "path", "name"),
    [
        ("Deployment", ("spec", "template", "spec", "containers", 0, "resources"), "limitz"),
        ("StatefulSet", ("spec",), "podManagmentPolicy"),
        ("PrometheusRule", ("spec", "groups", 0, "rules", 0), "forr"),
        ("ServiceMonitor", ("spec", "endpoints", 0), "scrapeTimeOut"),
        ("ScaledObject", ("spec",), "minReplicas"),
        ("HTTPRoute", ("spec", "rules", 0), "timeout"),
    ],
)
def test_the_server_refuses_a_planted_typo(
    kind: str, path: Sequence[str | int], name: str, plane: ControlPlane, home: Path
) -> None:
    rendered = Release(plane, home, "prod", "default").rendered("everything")
    broken: Any = next(one for one in rendered if one["kind"] == kind)
    place = broken
    for step in path:
        place = place[step]
    place[name] = "1"
    with pytest.raises(Refused, match=f'unknown field ".*{name}"'):
        dry_run(plane.api, broken)


def test_the_restricted_pod_security_standard_is_enforced(plane: ControlPlane, home: Path) -> None:
    release = Release(plane, home, "prod", "restricted")
    prepare_namespace(plane.api, release.namespace)
    deployment = next(one for one in release.rendered("minimal") if one["kind"] == "Deployment")
    pod: Any = {"apiVersion": "v1", "kind": "Pod", **deployment["spec"]["template"]}
    pod["metadata"] |= {"name": "pod", "namespace": release.namespace}
    pod["spec"] |= {"serviceAccountName": "default"}
    dry_run(plane.api, pod)
    pod["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
    with pytest.raises(Refused, match="violates PodSecurity"):
        dry_run(plane.api, pod)


def test_a_failed_deploy_step_stops_the_installation_and_leaves_its_job(
    plane: ControlPlane, kubelet: PretendKubelet, home: Path
) -> None:
    release = Release(plane, home, "prod", "deploy-fails")
    prepare_namespace(plane.api, release.namespace)
    kubelet.failing.add("deploy")
    try:
        with pytest.raises(AssertionError, match="pre-install"):
            release.apply("install", "minimal", {"deploy": {"backoffLimit": 0}})
    finally:
        kubelet.failing.clear()
    assert release.workloads() == []
    assert (release.namespace, "Job", "prod-starling-deploy") in stored(plane.api)

    release.apply("upgrade", "minimal")
    assert_ready(release)
    kubelet.failing.add("test")
    try:
        with pytest.raises(AssertionError, match="prod-starling-test"):
            release.helm("test", release.name)
    finally:
        kubelet.failing.clear()
    release.helm("uninstall", release.name, "--wait")


def test_a_pod_that_refers_to_a_missing_secret_does_not_start(plane: ControlPlane, kubelet: PretendKubelet, home: Path) -> None:
    release = Release(plane, home, "prod", "secret-missing")
    prepare_namespace(plane.api, release.namespace)
    values = {"ingest": {"writeKeys": {"existingSecret": "other"}}}
    files = ("--values", str(CHART / "ci/minimal-values.yaml"), "--values", "-")
    release.helm("install", release.name, str(CHART), *files, values=values)
    [ingest] = [one for one in release.workloads() if one["metadata"]["name"] == "prod-starling-ingest"]

    def reported() -> bool:
        states = [state for pod in release.pods_of(ingest) for state in pod["status"].get("containerStatuses", ())]
        return any(one["state"].get("waiting", {}).get("message") == "Secret other" for one in states)

    wait_until(reported, "the reason")
    release.helm("uninstall", release.name)


@pytest.mark.parametrize("ci", ["minimal", "production"])
def test_a_release_of_the_first_chart_is_upgraded_and_keeps_its_state(
    ci: str, plane: ControlPlane, kubelet: PretendKubelet, home: Path, tmp_path: Path
) -> None:
    release = Release(plane, home, "prod", f"first-{ci}")
    prepare_namespace(plane.api, release.namespace)
    release.apply("install", ci, chart=first_chart(tmp_path))
    assert_ready(release)
    before = identities(release)

    release.apply("upgrade", ci)
    assert_ready(release)
    after = identities(release)
    assert before.items() <= after.items(), "a claim or a StatefulSet was replaced"
    assert any(kind == "PersistentVolumeClaim" for kind, _ in before)

    release.helm("rollback", release.name, "1", "--wait", "--timeout", TIMEOUT)
    assert_ready(release)
    assert before.items() <= identities(release).items()
    release.helm("uninstall", release.name, "--wait")


def identities(release: Release) -> Mapping[tuple[str, str], str]:
    """Return the ids of the objects with state, by kind and name."""
    api, namespace = release.plane.api, release.namespace
    claims = api.items(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims")
    sets = api.items(f"/apis/apps/v1/namespaces/{namespace}/statefulsets")
    listed = [("PersistentVolumeClaim", one) for one in claims] + [("StatefulSet", one) for one in sets]
    return {(kind, one["metadata"]["name"]): one["metadata"]["uid"] for kind, one in listed}


def first_chart(directory: Path) -> Path:
    """Return the chart of `FIRST_CHART`. Raises: AssertionError in a copy of the repository without its history."""
    archive = subprocess.run(["git", "-C", str(ROOT), "archive", FIRST_CHART, "helm/starling"], capture_output=True, check=False)
    assert archive.returncode == 0, f"the commit {FIRST_CHART} is missing: run `git fetch --unshallow` ({archive.stderr.decode()})"
    subprocess.run(["tar", "-x", "-C", str(directory)], input=archive.stdout, check=True)
    return directory / "helm/starling"
