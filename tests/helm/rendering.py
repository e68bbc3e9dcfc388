"""Renders the chart with the real Helm, and finds what a pod of it would get."""

import json
import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

ROOT: Final = Path(__file__).parents[2]
CHART: Final = ROOT / "helm/starling"
HELM: Final = ROOT / "tools/helm.sh"
CI: Final = tuple(sorted(path.stem.removesuffix("-values") for path in (CHART / "ci").glob("*-values.yaml")))
RELEASE: Final = "prod"
NAMESPACE: Final = "marketing"
CUSTOM: Final = ("keda.sh/v1alpha1", "monitoring.coreos.com/v1", "gateway.networking.k8s.io/v1")
"""Custom resources of a cluster that has everything."""

Manifest = Mapping[str, Any]


class StrictLoader(yaml.CSafeLoader):
    """Refuses a mapping with the same key twice, which Kubernetes would resolve silently."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return the mapping. Raises: ValueError."""
        keys = [self.construct_object(key, deep=deep) for key, _ in node.value]
        if len(set(keys)) < len(keys):
            twice = {key for key in keys if keys.count(key) > 1}
            raise ValueError(f"line {node.start_mark.line + 1}: keys that are there twice: {twice}")
        return super().construct_mapping(node, deep=deep)


def helm(*arguments: str, text: str | None = None, major: int = 3) -> subprocess.CompletedProcess[str]:
    """Run Helm 3 or 4. `text`: its standard input."""
    variables = os.environ | {"HELM_MAJOR": str(major)}
    return subprocess.run([HELM, *arguments], input=text, env=variables, capture_output=True, text=True, check=False)


def template(
    values: Mapping[str, Any] | None = None,
    ci: str = "minimal",
    *,
    custom: Sequence[str] = CUSTOM,
    chart: Path = CHART,
    major: int = 3,
) -> subprocess.CompletedProcess[str]:
    """Run `helm template` with the file of `ci/`, and `values` over it."""
    capabilities = [word for one in custom for word in ("--api-versions", one)]
    files = ["--values", str(CHART / f"ci/{ci}-values.yaml"), "--values", "-"]
    arguments = ("template", RELEASE, str(chart), "--namespace", NAMESPACE, *files, *capabilities)
    return helm(*arguments, text=yaml.safe_dump(values or {}), major=major)


def rendered(
    values: Mapping[str, Any] | None = None,
    ci: str = "minimal",
    *,
    custom: Sequence[str] = CUSTOM,
    chart: Path = CHART,
    major: int = 3,
) -> list[Manifest]:
    """Return every object, and the Jobs that the API creates; do not change them.

    Raises: AssertionError if Helm refuses the values.
    """
    return list(_rendered(yaml.safe_dump(values or {}), ci, tuple(custom), chart, major))


# A rendering takes a second of the processor, and the tests of twenty components read the same one.
@cache
def _rendered(values: str, ci: str, custom: Sequence[str], chart: Path, major: int) -> Sequence[Manifest]:
    done = template(yaml.safe_load(values), ci, custom=custom, chart=chart, major=major)
    assert done.returncode == 0, done.stderr
    manifests = [one for one in yaml.load_all(done.stdout, StrictLoader) if one is not None]
    return [*manifests, *started(manifests)]


def started(manifests: Iterable[Manifest]) -> list[Manifest]:
    """Return the Jobs that the API creates."""
    maps = [one for one in manifests if one["kind"] == "ConfigMap" and one["metadata"]["name"].endswith("-jobs")]
    return [json.loads(text) for one in maps for text in one["data"].values()]


def without_keys(manifests: Iterable[Manifest]) -> list[Manifest]:
    """Return the objects without the key of secrets, which is another one in each rendering."""
    return [
        {**one, "stringData": {}} if one["metadata"]["name"].endswith(("-secret-keys", "-link-keys")) else one for one in manifests
    ]


class Workload(NamedTuple):
    """An object with pods."""

    manifest: Manifest

    @property
    def component(self) -> str:
        """Return the component's name."""
        component: str = self.manifest["metadata"]["labels"]["app.kubernetes.io/component"]
        return component

    @property
    def template(self) -> Manifest:
        """Return the template of its pods."""
        spec = self.manifest["spec"]
        template: Manifest = (spec["jobTemplate"]["spec"] if self.manifest["kind"] == "CronJob" else spec)["template"]
        return template

    @property
    def spec(self) -> Manifest:
        """Return the pod's specification."""
        spec: Manifest = self.template["spec"]
        return spec

    @property
    def container(self) -> Manifest:
        """Return the component's own container."""
        container: Manifest = self.spec["containers"][0]
        return container

    @property
    def labels(self) -> Mapping[str, str]:
        """Return the labels of its pods."""
        labels: Mapping[str, str] = self.template["metadata"]["labels"]
        return labels


def of_kind(manifests: Sequence[Manifest], *kinds: str) -> list[Manifest]:
    return [one for one in manifests if one["kind"] in kinds]


def workloads(manifests: Sequence[Manifest]) -> list[Workload]:
    return [Workload(one) for one in of_kind(manifests, "Deployment", "StatefulSet", "Job", "CronJob")]


def named(manifests: Sequence[Manifest], kind: str, name: str) -> Manifest:
    """Return one object. Raises: AssertionError if there is none, or more than one."""
    found = [one for one in of_kind(manifests, kind) if one["metadata"]["name"] == name]
    assert len(found) == 1, f"{kind} {name}: {len(found)} in {sorted(one['metadata']['name'] for one in of_kind(manifests, kind))}"
    return found[0]


def matches(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    return bool(selector) and selector.items() <= labels.items()


def environment(workload: Workload, manifests: Sequence[Manifest], secrets: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Return the environment of the component's container.

    `secrets`: those that the chart expects to exist, by name. Raises: AssertionError for a missing config map or secret.
    """
    found: dict[str, str] = {}
    for source in workload.container.get("envFrom", ()):
        reference = source.get("configMapRef") or source["secretRef"]
        if not reference.get("optional"):
            found |= named(manifests, "ConfigMap", reference["name"])["data"]
    for variable in workload.container["env"]:
        found[variable["name"]] = _value(workload, variable, manifests, secrets)
    return found


def _value(workload: Workload, variable: Manifest, manifests: Sequence[Manifest], secrets: Mapping[str, Mapping[str, str]]) -> str:
    if "value" in variable:
        assert isinstance(variable["value"], str), f"{variable}: Kubernetes takes texts only"
        return variable["value"]
    source = variable["valueFrom"]
    if "fieldRef" in source:
        fields = {"metadata.name": f"{workload.manifest['metadata']['name']}-0", "status.podIP": "10.0.0.5"}
        return fields[source["fieldRef"]["fieldPath"]]
    reference = source["secretKeyRef"]
    if reference["name"] in secrets:
        return secrets[reference["name"]][reference["key"]]
    text: str = named(manifests, "Secret", reference["name"])["stringData"][reference["key"]]
    return text


def containers(workload: Workload) -> Iterator[Manifest]:
    """Yield all containers of a pod, the first ones too."""
    yield from workload.spec.get("initContainers", ())
    yield from workload.spec["containers"]
