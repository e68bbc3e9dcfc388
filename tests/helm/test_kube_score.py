"""kube-score grades the objects of the chart; `make kube-score` builds it, and without it the tests are skipped."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, Final

import pytest
import yaml

from tests.helm.rendering import ROOT, Manifest, rendered

KUBE_SCORE: Final = ROOT / "tools/kube_score.sh"
PASSED: Final = 10

_ONE_POD: Final = "one pod acts at a time; a second one would repeat its work"
ALLOWED: Final[Mapping[tuple[str, str], str]] = {
    ("container-resources", "CPU limit is not set"): "a limit slows a pod down on an idle node; requests share a busy one",
    (
        "container-ephemeral-storage-request-and-limit",
        "Ephemeral Storage limit is not set",
    ): "data is on volumes, logs go to stdout",
    ("container-ephemeral-storage-request-and-limit", "Ephemeral Storage request is not set"): "data is on volumes",
    ("container-image-pull-policy", "ImagePullPolicy is not set to Always"): "a tag is a version, which is never pushed again",
    ("deployment-has-host-podantiaffinity", "Deployment does not have a host podAntiAffinity set"): "topology spread constraints",
    ("statefulset-has-host-podantiaffinity", "StatefulSet does not have a host podAntiAffinity set"): "topology spread constraints",
    ("networkpolicy-targets-pod", "The NetworkPolicys selector doesn't match any pods"): "of Jobs that the API starts",
    ("deployment-strategy", "Deployment update strategy"): _ONE_POD,
    ("deployment-replicas", "Deployment few replicas"): _ONE_POD,
}
"""(check, finding) -> the reason why it stays."""
FEW: Final = frozenset({"audience", "broadcaster", "lake", "profiles", "delivery", "projector"})
"""Components with one pod, and those whose number KEDA sets, which kube-score does not know."""


def findings(manifests: Sequence[Manifest]) -> set[tuple[str, str, str]]:
    """Return (check, finding, name of the object) of everything that is below the best grade."""
    path = subprocess.run([KUBE_SCORE, "--path"], capture_output=True, text=True, check=False)
    if path.returncode:
        pytest.skip(path.stderr.strip())
    command = [path.stdout.strip(), "score", "--output-format", "json", "-"]
    done = subprocess.run(command, input=yaml.safe_dump_all(manifests), capture_output=True, text=True, check=False)
    graded: list[dict[str, Any]] = json.loads(done.stdout)
    assert {one["type_meta"]["kind"] for one in graded} >= {"Deployment", "StatefulSet", "Job", "Service", "NetworkPolicy"}
    return {
        (check["check"]["id"], comment["summary"], one["object_meta"]["name"])
        for one in graded
        for check in one["checks"]
        if not check["skipped"] and check["grade"] < PASSED
        for comment in check["comments"] or [{"summary": ""}]
    }


def test_every_finding_about_an_installation_in_production_has_a_reason() -> None:
    found = findings(rendered(ci="production"))
    assert {(check, text) for check, text, _ in found} == set(ALLOWED)
    few = {name.rpartition("-")[2] for check, _, name in found if check == "deployment-replicas"}
    assert few == FEW


def test_a_planted_weakness_is_found() -> None:
    manifests = deepcopy(rendered(ci="production"))
    [api] = [one for one in manifests if one["kind"] == "Deployment" and one["metadata"]["name"].endswith("-api")]
    container = api["spec"]["template"]["spec"]["containers"][0]
    del container["securityContext"]["readOnlyRootFilesystem"]
    del container["resources"]["limits"]
    new = {check for check, text, _ in findings(manifests) if (check, text) not in ALLOWED}
    assert new == {"container-security-context-readonlyrootfilesystem", "container-resources"}
