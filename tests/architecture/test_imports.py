"""The direction of imports is a rule that is checked; a planted violation proves that the check can fail."""

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

ROOT = Path(__file__).parents[2]


def lint(config: Path, first_on_path: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(first_on_path)} if first_on_path else dict(os.environ)
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache", "--config", str(config)]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def test_imports_go_one_way() -> None:
    done = lint(ROOT / "pyproject.toml")
    assert done.returncode == 0, done.stdout


PLANTED: Final = (
    pytest.param("libs/segments/starling_segments", "import confluent_kafka", "language is pure", id="a driver in the language"),
    pytest.param("libs/common/starling_common", "import starling_segments", "Imports go one way", id="upwards"),
    pytest.param("libs/items/starling_items", "import confluent_kafka", "Rules and items without I/O", id="driver in a stage"),
    pytest.param(
        "libs/rules/starling_rules", "import starling_common.kafka.clients", "Rules and items without I/O", id="Kafka in rules"
    ),
    pytest.param("libs/policy/starling_policy", "import time", "The policy is pure", id="a clock in the policy"),
    pytest.param("libs/policy/starling_policy/checks.py", "import starling_policy.waiting", "The policy in layers", id="policy"),
    pytest.param("libs/items/starling_items", "import starling_segments", "stages of an item know", id="segments in a stage"),
    pytest.param("services/projector/starling_projector", "import starling_api", "Imports go one way", id="service to service"),
    pytest.param("libs/stream/starling_stream", "import fastavro", "wire package imports Avro", id="Avro outside wire"),
    pytest.param("services/api/starling_api", "import pyspark", "import pyspark", id="pyspark in a service"),
    pytest.param("services/segmenter/starling_segmenter", "import faust", "stream layer imports Faust", id="Faust in a service"),
    pytest.param(
        "libs/segments/starling_segments/language", "import starling_segments.engine", "language in layers", id="up in segments"
    ),
    pytest.param(
        "libs/stream/starling_stream/fold",
        "import starling_stream.worker",
        "stream layer in layers",
        id="up in the stream layer",
    ),
    pytest.param("libs/common/starling_common/wire", "import starling_common.kafka", "common package in", id="up in common"),
    pytest.param(
        "spark/starling_spark/jobs/backfill", "import starling_spark.jobs.replay", "No Spark job", id="job to job in Spark"
    ),
    pytest.param(
        "spark/starling_spark/kafka", "import starling_spark.lakehouse", "jobs on history", id="up in the packages of Spark"
    ),
    pytest.param("apps/local/starling_local", "import starling_cli", "Imports go one way", id="command in the stack"),
    pytest.param("apps/cli/starling_cli", "import starling_demo", "Imports go one way", id="demo in the command"),
    pytest.param("apps/local/starling_local", "import starling_api", "starts the services as processes", id="service in the stack"),
    pytest.param("apps/cli/starling_cli", "import starling_stream", "starts the services as processes", id="stream in the command"),
    pytest.param("apps/demo/starling_demo", "import starling_segments", "starts the services as processes", id="plan in the demo"),
    pytest.param(
        "services/segmenter/starling_segmenter/state", "import starling_segmenter.records", "agents on handlers", id="segmenter"
    ),
    pytest.param(
        "services/ingest/starling_ingest/requests", "import starling_ingest.publishing", "HTTP application on", id="ingest"
    ),
    pytest.param(
        "services/api/starling_api/http/openapi",
        "import starling_api.http.access",
        "HTTP of the API",
        id="HTTP of the API",
    ),
    pytest.param(
        "services/delivery/starling_delivery/sending", "import starling_delivery.channels", "Delivery: agents", id="delivery"
    ),
    pytest.param(
        "services/projector/starling_projector/projection",
        "import starling_projector.store",
        "Projector: agents",
        id="projector",
    ),
    pytest.param("apps/local/starling_local/stack/parts", "import starling_local.stack.supervision", "embedded stack:", id="stack"),
    pytest.param(
        "spark/starling_spark/jobs/profiles/fold",
        "import starling_spark.jobs.profiles.query",
        "Computed traits on Spark",
        id="profiles",
    ),
    pytest.param("spark/starling_spark/jobs/replay/fold", "import starling_spark.jobs.replay.job", "Replay on Spark", id="replay"),
    pytest.param(
        "spark/starling_spark/jobs/reprocess/fold",
        "import starling_spark.jobs.reprocess.context",
        "Reprocessing on Spark",
        id="reprocess",
    ),
    pytest.param("spark/starling_spark/lakehouse/schema", "import starling_spark.lakehouse.iceberg", "The lake:", id="lake"),
    pytest.param(
        "libs/stream/starling_stream/state/flush", "import starling_stream.state.restore", "State of the stream", id="state"
    ),
)
"""Package, or module, with a planted import; the import; words of the contract that it breaks."""


def planted_module(index: int) -> str:
    """Return the module in which the import of a case is planted: its own one in a package, or the named one."""
    package = str(PLANTED[index].values[0]).partition("/starling_")[2]
    name = f"starling_{package}".replace("/", ".")
    return name.removesuffix(".py") if name.endswith(".py") else f"{name}.planted_{index}"


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """Contract -> its report, of one check of all packages with every planted import; a check takes seconds."""
    copies = tmp_path_factory.mktemp("planted")
    for index, case in enumerate(PLANTED):
        root = re.match(r".*/starling_[a-z]+", str(case.values[0]))[0]  # type: ignore[index]  # all have a root
        copy = copies / Path(root).name
        if not copy.exists():
            shutil.copytree(ROOT / root, copy, ignore=shutil.ignore_patterns("__pycache__"))
        with (copies / f"{planted_module(index).replace('.', '/')}.py").open("a") as module:
            module.write(f"{case.values[1]}\n")
    done = lint(ROOT / "pyproject.toml", first_on_path=copies)
    assert done.returncode != 0
    report = done.stdout.partition("Broken contracts\n")[2]
    # A heading is underlined, in as many lines as it has.
    pieces = re.split(r"\n((?:[^\n-][^\n]*\n)+)(?:-+\n)+", report)
    return {heading.replace(" \n", " ").strip(): text for heading, text in zip(pieces[1::2], pieces[2::2], strict=True)}


@pytest.mark.parametrize("index", [pytest.param(index, id=str(case.id)) for index, case in enumerate(PLANTED)])
def test_a_planted_violation_is_found(index: int, broken: Mapping[str, str]) -> None:
    _, line, contract = PLANTED[index].values
    [report] = [text for heading, text in broken.items() if str(contract) in heading]
    chain = f"- +{re.escape(planted_module(index))} -> {re.escape(str(line).removeprefix('import '))} "
    assert re.search(chain, " ".join(report.split())), report


BENCHMARK_LAYERS: Final = {
    "common": frozenset({"common", "peers"}),
    "stream_parts": frozenset({"common", "peers", "stream_parts", "segments_mix"}),
    "delivery_parts": frozenset({"common", "delivery_parts"}),
}
"""Package of `benchmarks/` -> the names of `benchmarks/` that it may import."""


def up_in_benchmarks(package: str, source: str) -> set[str]:
    """Return the names of `benchmarks/` that the source imports and its package may not."""
    own = {path.stem for path in (ROOT / "benchmarks").iterdir() if path.suffix == ".py" or path.is_dir()}
    imported = {
        name.partition(".")[0]
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names])
    }
    return (imported & own) - BENCHMARK_LAYERS[package]


@pytest.mark.parametrize("package", BENCHMARK_LAYERS)
def test_the_packages_of_the_benchmarks_import_no_command(package: str) -> None:
    sources = {path.name: path.read_text() for path in (ROOT / "benchmarks" / package).glob("*.py")}
    assert len(sources) > 2
    assert {name: found for name, source in sources.items() if (found := up_in_benchmarks(package, source))} == {}


@pytest.mark.parametrize("line", ["import stream", "from stream_parts import state", "from whole.load import Load"])
def test_a_command_in_the_common_code_of_the_benchmarks_is_found(line: str) -> None:
    assert up_in_benchmarks("common", f"import json\n{line}\n")
