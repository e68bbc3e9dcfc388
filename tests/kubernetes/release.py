"""A release of the chart in a running control plane, by the real Helm, and what the server then has of it."""

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from tests.kubernetes.api import Api, Manifest
from tests.kubernetes.control_plane import ROOT, ControlPlane

CHART: Final = ROOT / "helm/starling"
TIMEOUT: Final = "5m"
_WORKLOADS: Final = ("deployments", "statefulsets")
_OF_THE_CLUSTER: Final = frozenset({"Event", "Lease", "Endpoints", "EndpointSlice"})
"""Kinds that controllers create and remove in their own time."""

Identity = tuple[str, str, str]
"""Namespace, kind and name."""


@dataclass(frozen=True, slots=True)
class Release:
    """A release by its name and namespace. `home`: a directory for what Helm keeps; `major`: of Helm."""

    plane: ControlPlane
    home: Path
    name: str
    namespace: str
    major: int = 3

    def run(self, *arguments: str, values: Mapping[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
        """Run Helm in the namespace of the release. `values`: a document for `--values -`."""
        variables = {
            "HELM_MAJOR": str(self.major),
            "KUBECONFIG": str(self.plane.kubeconfig),
            **{f"HELM_{name}_HOME": str(self.home / name.lower()) for name in ("CACHE", "CONFIG", "DATA")},
        }
        command = [str(ROOT / "tools/helm.sh"), *arguments, "--namespace", self.namespace]
        text = yaml.safe_dump(dict(values or {}))
        return subprocess.run(command, input=text, env=os.environ | variables, capture_output=True, text=True, check=False)

    def helm(self, *arguments: str, values: Mapping[str, Any] | None = None) -> str:
        """Run Helm, and return its output. Raises: AssertionError with its messages if it fails."""
        done = self.run(*arguments, values=values)
        assert done.returncode == 0, f"helm {' '.join(arguments)}:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def apply(
        self, verb: str, ci: str, values: Mapping[str, Any] | None = None, chart: Path = CHART, timeout: str = TIMEOUT
    ) -> str:
        """Install or upgrade, with the file of `ci/` in the chart and `values` over it, and wait until all pods are ready."""
        files = ("--values", str(chart / f"ci/{ci}-values.yaml"), "--values", "-")
        return self.helm(verb, self.name, str(chart), *files, "--wait", "--timeout", timeout, values=values)

    def rendered(self, ci: str) -> list[Manifest]:
        """Return every object, hooks included, as Helm renders it for this cluster."""
        files = ("--values", str(CHART / f"ci/{ci}-values.yaml"))
        versions = [word for one in served(self.plane.api) for word in ("--api-versions", one)]
        return [one for one in yaml.safe_load_all(self.helm("template", self.name, str(CHART), *files, *versions)) if one]

    def workloads(self) -> list[Manifest]:
        """Return its Deployments and StatefulSets."""
        base = f"/apis/apps/v1/namespaces/{self.namespace}"
        return [one for plural in _WORKLOADS for one in self.plane.api.items(f"{base}/{plural}")]

    def pods_of(self, workload: Manifest) -> list[Manifest]:
        """Return the pods that a workload selects."""
        selector = ",".join(f"{key}={value}" for key, value in workload["spec"]["selector"]["matchLabels"].items())
        return self.plane.api.items(f"/api/v1/namespaces/{self.namespace}/pods", labelSelector=selector)

    def setting(self, component: str, name: str) -> str | None:
        """Return a variable of the component's ConfigMap."""
        labels = f"app.kubernetes.io/component={component},app.kubernetes.io/instance={self.name}"
        [found] = self.plane.api.items(f"/api/v1/namespaces/{self.namespace}/configmaps", labelSelector=labels)
        value: str | None = found["data"].get(name)
        return value


def served(api: Api) -> list[str]:
    """Return the groups with their versions, as charts ask for them."""
    groups = api.request("GET", "/apis")["groups"]
    return [version["groupVersion"] for group in groups for version in group["versions"]]


def stored(api: Api) -> set[Identity]:
    """Return the objects in all namespaces, without those that controllers remove in their own time, and without those of an owner.

    The cluster removes an object whose owner is removed. One that outlives its owner is returned.
    """
    found: dict[str, Identity] = {}
    owners: dict[str, list[str]] = {}
    for resource in api.resources():
        if resource.namespaced and "list" in resource.verbs and resource.kind not in _OF_THE_CLUSTER:
            for one in api.items(f"{resource.base}/{resource.plural}"):
                metadata = one["metadata"]
                found[metadata["uid"]] = (metadata["namespace"], resource.kind, metadata["name"])
                owners[metadata["uid"]] = [owner["uid"] for owner in metadata.get("ownerReferences", ())]
    return {identity for uid, identity in found.items() if not any(owner in found for owner in owners[uid])}
