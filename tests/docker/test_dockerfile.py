"""The Dockerfile, read by a parser: each image starts its process without rights, and has the packages that the process imports."""

import ast
import json
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from starling_local.runtime import runtime_jars
from tests.docker.stages import DOCKERFILE, ROOT, stages

CHART = ROOT / "helm/starling"
MAVEN = ROOT / "apps/local/starling_local/runtime/maven"
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
ENTRY = {
    "ingest": "starling_ingest", "normalizer": "starling_normalizer", "segmenter": "starling_segmenter",
    "projector": "starling_projector", "api": "starling_api", "delivery": "starling_delivery", "messenger": "starling_messenger",
    "scaler": "starling_scaler", "tracker": "starling_tracker", "broadcaster": "starling_broadcaster",
    "audience": "starling_audience",
    "deploy": "starling_common.deploy", "spark": "starling_spark.submit",
}  # fmt: skip
"""Target -> the module that its image runs."""
JOBS = tuple(sorted(path.name for path in (ROOT / "spark/starling_spark/jobs").iterdir() if (path / "__main__.py").is_file()))
ALSO = {
    "spark": (*(f"starling_spark.jobs.{job}" for job in JOBS), "starling_spark.lost_input"),
    "normalizer": ("starling_stream.inspect.operations", "starling_stream.worker.scaled_in"),
    "segmenter": ("starling_stream.inspect.operations", "starling_stream.worker.scaled_in"),
    "messenger": ("starling_stream.inspect.operations", "starling_stream.worker.scaled_in"),
}
"""Target -> other modules that are run in its image."""
IMPLIED = {"zoneinfo": "tzdata", "httpcore": "sniffio", "pyspark": "pandas"}
"""Module -> a package that is needed where it is imported, and that no code imports."""
SOURCES: tuple[Path, ...] = tuple(ROOT / name for name in PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["dev-mode-dirs"])


STAGES = stages(DOCKERFILE.read_text())
TARGETS = {name: stage for name, stage in STAGES.items() if stage.values("ENTRYPOINT")}
EVERY = pytest.mark.parametrize("target", ENTRY)


def test_there_is_an_image_for_each_process() -> None:
    assert set(TARGETS) == set(ENTRY)


@EVERY
def test_an_image_starts_its_module_under_an_init_process(target: str) -> None:
    [entry] = TARGETS[target].values("ENTRYPOINT")
    assert json.loads(entry) == ["tini", "--", "python", "-m", ENTRY[target]]
    spec = find_spec(ENTRY[target])
    assert spec is not None
    assert spec.origin is not None
    source = Path(spec.origin)
    main = source.with_name("__main__.py") if source.name == "__init__.py" else source
    assert '__name__ == "__main__"' in main.read_text()


@EVERY
def test_an_image_runs_as_the_user_of_the_chart(target: str) -> None:
    user = VALUES["podSecurityContext"]
    assert TARGETS[target].values("USER") == [f"{user['runAsUser']}:{user['runAsGroup']}"]
    steps = [kind for kind, _ in TARGETS[target].steps]
    assert steps.index("USER") > max(position for position, kind in enumerate(steps) if kind in {"COPY", "RUN"})
    created = " ".join(STAGES["base"].values("RUN"))
    assert f"--uid {user['runAsUser']} " in created
    assert f"--gid {user['runAsGroup']} " in created


def test_the_chart_installs_these_images() -> None:
    blocks = {name: VALUES[name] for name in ENTRY if name != "spark"} | {
        name: VALUES["spark"][name] for name in ("profiles", "lake")
    }
    for name, block in blocks.items():
        target = name if name in ENTRY else "spark"
        assert block["image"]["repository"] == f"starling-{target}"
        if target != "deploy":
            assert TARGETS[target].values("EXPOSE") == ["8080"]
    template = (CHART / "templates/_pod.tpl").read_text()
    assert "command: [tini, --, python, -m, {{ .module }}]" in template
    assert "containerPort: 8080" in template


def test_the_guide_builds_every_image() -> None:
    guide = (ROOT / "docs/how-to/kubernetes.md").read_text()
    [targets] = re.findall(r"^for target in (.+); do$", guide, re.MULTILINE)
    assert sorted(targets.split()) == sorted(ENTRY)


def test_the_jars_are_where_the_chart_expects_them() -> None:
    directory = VALUES["spark"]["jarDirectory"]
    assert f"--from=jars {directory} {directory}" in TARGETS["spark"].values("COPY")
    download = " ".join(STAGES["jars"].values("RUN"))
    assert f"s3) jars={directory}/s3 ;; *) jars={directory} ;;" in download
    assert '-DoutputDirectory="$jars" ' in download
    assert "sha256sum --check --strict" in download
    assert f"STARLING_SPARK_CLASS_PATH={directory}/s3/*" in TARGETS["spark"].values("ENV")


def test_the_image_has_the_jars_that_the_chart_names_and_others_by_an_argument_of_the_build() -> None:
    [argument] = STAGES["jars"].values("ARG")
    name, default = shlex.split(argument)[0].split("=")
    bundles = default.split()
    assert {path.name for bundle in bundles for path in runtime_jars(bundle)} >= {
        *VALUES["spark"]["jars"],
        *VALUES["spark"]["icebergJars"],
    }
    documented = re.findall(rf'--build-arg {name}="([a-z0-9 -]+)"', (ROOT / "docs/how-to/kubernetes.md").read_text())
    assert documented == [f"{default} s3"]
    assert {path.name for path in MAVEN.iterdir()} > {*bundles, "s3"}


@EVERY
def test_an_image_contains_no_compiler_and_no_other_stage(target: str) -> None:
    stage = TARGETS[target]
    assert stage.base == "base"
    sources = {f"--from=install-{target} /opt/starling /opt/starling"}
    assert set(stage.values("COPY")) - {"--from=jars /opt/jars /opt/jars"} == sources
    installed = " ".join((*STAGES["base"].values("RUN"), *stage.values("RUN")))
    assert not re.search(r"\b(gcc|g\+\+|clang|make|maven|build-essential|pip|[a-z0-9-]+-dev|openjdk-17-jdk\S*)\b", installed)


def test_every_stage_comes_from_an_earlier_one() -> None:
    names = list(STAGES)
    for position, stage in enumerate(STAGES.values()):
        assert stage.base == "${PYTHON_IMAGE}" if stage.name == "base" else stage.base in names[:position]
        for copied in stage.values("COPY"):
            assert all(source in names[:position] for source in re.findall(r"--from=(\S+)", copied))


def test_what_is_copied_from_the_repository_exists_and_is_in_the_context() -> None:
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    for stage in STAGES.values():
        for copied in stage.values("COPY"):
            if copied.startswith("--from="):
                continue
            for source in shlex.split(copied)[:-1]:
                assert (ROOT / source).exists(), source
                assert source.split("/")[0] in allowed, f"{source}: .dockerignore leaves it out"


def command_violations(command: str) -> Iterator[str]:
    """Yield what is wrong with the command of a `RUN`."""
    if "apt-get install" in command and "--no-install-recommends" not in command:
        yield "apt-get install without --no-install-recommends"
    if "apt-get update" in command and "rm -rf /var/lib/apt/lists/*" not in command:
        yield "the lists of apt stay in the layer"
    if re.search(r"\bsudo\b|curl[^|]*\|\s*(ba)?sh", command):
        yield "sudo, or a script of the network"
    if re.search(r"\bpip3? install (?!--require-hashes)", command):
        yield "pip install without --require-hashes"


def violations(text: str) -> Iterator[str]:
    """Yield what is wrong by the rules of hadolint that concern this file."""
    for stage in stages(text).values():
        if "/" in stage.base.split("@")[0] or stage.base.endswith(":latest"):
            yield f"{stage.name}: {stage.base}: a registry host, or the tag latest"
        if stage.values("ADD"):
            yield f"{stage.name}: ADD: use COPY"
        for command in stage.values("RUN"):
            yield from (f"{stage.name}: {violation}" for violation in command_violations(command))
        for kind, value in stage.steps:
            if kind in {"ENTRYPOINT", "CMD"} and not value.startswith("["):
                yield f"{stage.name}: {kind} is not JSON: a shell would get the signals"
            if kind in {"ENV", "ARG"} and re.search(r"PASSWORD|TOKEN|SECRET", value):
                yield f"{stage.name}: a secret in {kind}"
            if kind == "WORKDIR" and not value.startswith("/"):
                yield f"{stage.name}: WORKDIR is relative"


def test_the_dockerfile_follows_the_rules() -> None:
    text = DOCKERFILE.read_text()
    assert list(violations(text)) == []
    [default] = re.findall(r"^ARG PYTHON_IMAGE=(\S+)$", text, re.MULTILINE)
    assert re.fullmatch(r"python:3\.11-slim-\w+(@sha256:[0-9a-f]{64})?", default), (
        "the Python of pyproject.toml, and no registry host"
    )


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("FROM registry.example/python AS x", "registry host"),
        ("ADD a /a", "use COPY"),
        ("RUN apt-get update && apt-get install --yes tini", "--no-install-recommends"),
        ("RUN apt-get update", "lists of apt"),
        ("RUN pip install structlog", "--require-hashes"),
        ("ENTRYPOINT python -m starling_ingest", "not JSON"),
        ("ENV API_TOKEN=a", "secret"),
    ],
)
def test_a_planted_violation_is_found(line: str, expected: str) -> None:
    assert expected in " ".join(violations(f"{DOCKERFILE.read_text()}\n{line}\n"))


def distribution(requirement: str) -> str:
    """Return the normalised name of a requirement."""
    return re.sub(r"[-_.]+", "-", re.split(r"[\[<>=]", requirement)[0]).lower()


EXTRAS: Mapping[str, Sequence[str]] = PROJECT["project"]["optional-dependencies"]
DIRECT: Mapping[str, str] = {
    distribution(one): one for one in (*PROJECT["project"]["dependencies"], *EXTRAS["traces"], *EXTRAS["lineage"])
}
"""The packages that the project itself requires, by name; others come with them."""


@cache
def source_of(module: str) -> Path | None:
    """Return the file of a module of ours; None if it is a name within a module."""
    for root in SOURCES:
        path = root / Path(*module.split("."))
        for file in (path / "__init__.py", path.with_suffix(".py")):
            if file.is_file():
                return file
    return None


@cache
def imports_of(path: Path) -> frozenset[str]:
    """Return what a file imports, also within its functions; of `from a import b` both `a` and `a.b`."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(found)


def required(starts: Sequence[str]) -> set[str]:
    """Return the packages, of those that the project requires, that the modules import directly or through each other."""
    seen: set[str] = set()
    waiting = [*starts, *(f"{start}.__main__" for start in starts)]
    top: set[str] = set()
    while waiting:
        module = waiting.pop()
        if module in seen:
            continue
        seen.add(module)
        if not module.startswith("starling_"):
            top.add(module.split(".")[0])
            continue
        if "." in module:
            waiting.append(module.rpartition(".")[0])
        path = source_of(module)
        if path is not None:
            waiting += imports_of(path)
    by_module = packages_distributions()
    names = {distribution(name) for module in top - set(sys.stdlib_module_names) for name in by_module.get(module, [module])}
    return (names | {package for module, package in IMPLIED.items() if module in top}) & DIRECT.keys()


@EVERY
def test_an_image_has_the_packages_that_its_process_imports_and_no_others(target: str) -> None:
    lines = (ROOT / f"docker/requirements/{target}.txt").read_text().splitlines()
    listed = [line for line in lines if not line.startswith("#")]
    assert {distribution(line) for line in listed} == required((ENTRY[target], *ALSO.get(target, ())))
    assert all(DIRECT[distribution(line)] == line for line in listed), "as in pyproject.toml"
    assert f"docker/install.sh {target}" in STAGES[f"install-{target}"].values("RUN")


def test_an_image_installs_nothing_without_a_hash() -> None:
    installed = [line for line in (ROOT / "docker/install.sh").read_text().splitlines() if " install " in line and line[0] != "#"]
    assert ["--require-hashes" in line or "--no-deps --no-index" in line for line in installed] == [True, True]


def test_a_removed_package_would_be_found() -> None:
    assert {"granian", "confluent-kafka"} <= required(("starling_ingest",))
    assert not {"pyspark", "kubernetes", "cassandra-driver", "rocksdict"} & required(("starling_ingest",))
