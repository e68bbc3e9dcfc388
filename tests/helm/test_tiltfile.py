"""The Tiltfile, executed by a Starlark interpreter: images, chart, live updates and ports fit the Dockerfile and the chart."""

import io
import re
import shlex
import tomllib
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

import pytest
import yaml
from dockerfile_parse import DockerfileParser
from starlark import StarlarkError

from tests.helm.kubernetes_types import misfits
from tests.helm.rendering import ROOT, Manifest, StrictLoader, containers, helm, named, workloads
from tests.helm.tilt import MANUAL, Recorded, execute, tiltfile

SERVICES = ("ingest", "normalizer", "segmenter", "projector", "api", "delivery")
BACKENDS = ROOT / "helm/kind/backends.yaml"
KINDS = {
    "Deployment": "V1Deployment", "Namespace": "V1Namespace", "Secret": "V1Secret", "Service": "V1Service",
    "StatefulSet": "V1StatefulSet",
}  # fmt: skip
STEPS = [
    (step["instruction"], step["value"])
    for step in DockerfileParser(fileobj=io.BytesIO((ROOT / "docker/Dockerfile").read_bytes())).structure
]
TARGETS = {value.split()[-1] for kind, value in STEPS if kind == "FROM"}
WHEEL = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]


@pytest.fixture(scope="module")
def recorded() -> Recorded:
    return tiltfile(ROOT)


@pytest.fixture(scope="module")
def chart(recorded: Recorded) -> list[Manifest]:
    """What Helm renders with the arguments of the Tiltfile. Its values are accepted by the closed schema of the chart."""
    [call] = recorded.of("helm")
    files = [word for path in call.get("values") for word in ("--values", str(ROOT / path))]
    release = ("template", call.get("name"), str(ROOT / call.get("pathToChart", 0)), "--namespace", call.get("namespace"))
    done = helm(*release, *files)
    assert done.returncode == 0, done.stderr
    found = [one for one in yaml.load_all(done.stdout, StrictLoader) if one is not None]
    return [one for one in found if one["metadata"].get("annotations", {}).get("helm.sh/hook") != "test"]


@pytest.fixture(scope="module")
def backends() -> list[Manifest]:
    return list(yaml.load_all(BACKENDS.read_text(), StrictLoader))


def repositories(manifests: list[Manifest]) -> set[str]:
    return {container["image"].rpartition(":")[0] for one in workloads(manifests) for container in containers(one)}


def test_every_path_exists(recorded: Recorded) -> None:
    paths = set(recorded.paths())
    assert len(paths) > 20
    assert {path for path in paths if not (ROOT / path).exists()} == set()


def test_every_image_of_the_chart_is_built_from_its_target(recorded: Recorded, chart: list[Manifest]) -> None:
    images = recorded.images
    assert repositories(chart) <= images.keys()
    assert {f"starling-{name}" for name in SERVICES} <= repositories(chart)
    for name, call in images.items():
        if call.get("target"):
            assert call.get("target") in TARGETS
            assert name in {f"starling-{call.get('target')}", f"starling-{call.get('target')}-production"}
        else:
            assert f"\nFROM {name}-production\n" in call.get("dockerfile_contents")
            assert f"{name}-production" in images


def test_the_context_has_everything_that_the_dockerfile_copies(recorded: Recorded) -> None:
    copied = {
        source for kind, value in STEPS if kind == "COPY" and "--from=" not in value for source in shlex.split(value)[:-1]
    }  # fmt: skip
    assert len(copied) > 5
    for call in recorded.images.values():
        assert {source for source in copied if source.split("/")[0] not in call.get("only")} == set()


def test_a_live_update_writes_each_package_to_where_the_image_has_it(recorded: Recorded) -> None:
    [site] = {call.get("remote_path", 1).partition("/starling_")[0] for call in recorded.of("sync")}
    [python] = {re.search(r"python:(\d\.\d+)", value)[1] for kind, value in STEPS if kind == "ARG" and "python:" in value}  # type: ignore[index]
    assert site == f"/opt/starling/lib/python{python}/site-packages"
    packaged = {path: str(PurePosixPath(packages_name(path))) for path in WHEEL["only-include"]}
    for service in SERVICES:
        steps = [recorded.calls[int(step["call"])] for step in recorded.images[f"starling-{service}"].get("live_update")]
        assert steps[0].function == "fall_back_on"
        synced = {step.get("local_path", 0): step.get("remote_path", 1) for step in steps[1:]}
        expected = [path for path in packaged if path.startswith(("libs/", f"services/{service}/", "schemas/"))]
        assert synced == {path: f"{site}/{packaged[path]}" for path in expected}


def packages_name(path: str) -> str:
    """Return where the wheel has a directory of the repository."""
    sources: Mapping[str, str] = WHEEL["sources"]
    if path in sources:
        return sources[path]
    prefix = max((one for one in sources if path.startswith(f"{one}/")), key=len)
    return f"{sources[prefix]}/{path.removeprefix(prefix + '/')}".removeprefix("/")


def test_a_service_starts_as_in_the_chart_and_can_be_written_to(recorded: Recorded, chart: list[Manifest]) -> None:
    pods = {one.component: one for one in workloads(chart)}
    for service in SERVICES:
        call, container = recorded.images[f"starling-{service}"], pods[service].container
        assert call.function == "docker_build_with_restart"
        assert call.get("entrypoint") == container["command"]
        assert container["securityContext"]["readOnlyRootFilesystem"] is False
        mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
        written = [call.get("restart_file"), *(step.get("remote_path", 1) for step in recorded.of("sync"))]
        assert [path for path in written for mount in mounts if PurePosixPath(path).is_relative_to(mount)] == []
        user = f"{pods[service].spec['securityContext']['runAsUser']}:{pods[service].spec['securityContext']['runAsGroup']}"
        assert f"chown -R {user} /opt/starling/" in call.get("dockerfile_contents")
        assert call.get("dockerfile_contents").rstrip().endswith(f"USER {user}")


def test_every_workload_is_a_resource_and_waits_for_what_it_needs(
    recorded: Recorded, chart: list[Manifest], backends: list[Manifest]
) -> None:
    names = {one.manifest["metadata"]["name"] for one in workloads(chart)}
    stores = {one["metadata"]["name"] for one in backends if one["kind"] in {"Deployment", "StatefulSet"}}
    assert recorded.resources.keys() == names | stores
    assert set(recorded.resources["starling-deploy"].get("resource_deps")) == stores
    for name in names - {"starling-deploy"}:
        assert recorded.resources[name].get("resource_deps") == ["starling-deploy"]


def test_the_ports_of_the_doors_are_forwarded(recorded: Recorded, chart: list[Manifest], backends: list[Manifest]) -> None:
    ports = {
        (one.manifest["metadata"]["name"], port["containerPort"])
        for one in workloads(chart) for container in containers(one) for port in container.get("ports", ())
    } | {
        (one["metadata"]["name"], port["containerPort"])
        for one in backends if "template" in one.get("spec", {})
        for port in one["spec"]["template"]["spec"]["containers"][0]["ports"]
    }  # fmt: skip
    forwards = {
        (name, int(port.partition(":")[2]))
        for name, call in recorded.resources.items() for port in call.get("port_forwards") or ()
    }  # fmt: skip
    assert forwards <= ports
    assert {("starling-ingest", 8080), ("starling-api", 8080)} <= forwards


def test_the_tests_are_resources_that_run_on_request(recorded: Recorded) -> None:
    commands = {call.get("name", 0): call.get("cmd", 1) for call in recorded.of("local_resource")}
    assert commands == {"unit tests": ".venv/bin/python -m pytest tests/unit", "check": "make check"}
    assert re.search(r"^check:", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert (ROOT / "tests/unit").is_dir()
    assert {call.get("trigger_mode") for call in recorded.of("local_resource")} == {MANUAL}


def test_only_a_local_cluster_is_changed(recorded: Recorded) -> None:
    assert [call.get("contexts", 0) for call in recorded.of("allow_k8s_contexts")] == ["kind-starling"]


def test_the_backends_have_the_addresses_of_the_demo_values(
    recorded: Recorded, chart: list[Manifest], backends: list[Manifest]
) -> None:
    [call] = recorded.of("helm")
    [space] = [one["metadata"]["name"] for one in backends if one["kind"] == "Namespace"]
    assert call.get("namespace") == space
    assert {one["metadata"]["namespace"] for one in backends if one["kind"] != "Namespace"} == {space}
    addresses = {
        f"{one['metadata']['name']}:{port['port']}" for one in backends if one["kind"] == "Service" for port in one["spec"]["ports"]
    }
    settings: dict[str, Any] = named(chart, "ConfigMap", "starling-segmenter")["data"]
    used = {
        settings["STARLING_KAFKA__BROKERS"],
        settings["STARLING_REGISTRY__URL"].split("/")[2],
        f"{settings['STARLING_CASSANDRA__CONTACT_POINTS']}:{settings['STARLING_CASSANDRA__PORT']}",
    }
    assert used == addresses


def test_the_backends_have_fields_and_selectors_of_kubernetes(backends: list[Manifest]) -> None:
    found = [misfit for one in backends for misfit in misfits(one, KINDS[one["kind"]], f"{one['kind']}/{one['metadata']['name']}")]
    assert found == []
    templates = [one["spec"]["template"] for one in backends if "template" in one.get("spec", {})]
    for service in (one for one in backends if one["kind"] == "Service"):
        [pod] = [one for one in templates if one["metadata"]["labels"] == service["spec"]["selector"]]
        [container] = pod["spec"]["containers"]
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= {port["name"] for port in container["ports"]}
        assert pod["spec"]["enableServiceLinks"] is False


def test_the_backends_have_the_versions_of_the_local_stack(backends: list[Manifest]) -> None:
    images = dict(
        one["spec"]["template"]["spec"]["containers"][0]["image"].rsplit(":", 1)
        for one in backends
        if "template" in one.get("spec", {})
    )
    poms = {
        name: (ROOT / f"apps/local/starling_local/runtime/maven/{name}/pom.xml").read_text()
        for name in ("kafka", "registry", "cassandra")
    }
    assert f"<version>{images['apache/kafka']}</version>" in poms["kafka"]
    assert f"<version>{images['apicurio/apicurio-registry']}</version>" in poms["registry"]
    assert f"<version>{images['cassandra']}." in poms["cassandra"]


def test_a_name_that_tilt_does_not_have_is_found() -> None:
    with pytest.raises(StarlarkError, match="docker_buil"):
        execute("docker_buil('a', '.')")
    with pytest.raises(StarlarkError, match="docker_build has no parameter targe"):
        execute("docker_build('a', '.', targe='x')")
