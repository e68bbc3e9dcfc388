"""The images, made from their locks, and the process of each started: one in `make test`, all of them in `make test-images`.

`make test` installs the environment of one image by `docker/install.sh`. `make test-images` executes each step of the Dockerfile.
"""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from starling_common.testing import free_port
from starling_local.runtime import runtime_jars
from tests.docker.image_build import ImageBuild, obstacle
from tests.docker.stages import DOCKERFILE, ROOT, stages
from tests.processes import end

ALL = os.environ.get("STARLING_IMAGES") == "all"
STAGES = stages(DOCKERFILE.read_text())
TARGETS = [name for name, stage in STAGES.items() if stage.values("ENTRYPOINT")]
NO_PEER = re.compile(r"(?m)^.*(?:no access to Kubernetes|the schema registry at \S+ does not respond|Broker transport failure).*$")
ARGUMENTS = {"spark": ["profiles"]}
QUICK = "ingest"


def settings(tmp_path: Path) -> dict[str, str]:
    """Return settings of every process, whose broker, registry and database do not exist."""
    return {
        "STARLING_KAFKA__BROKERS": "127.0.0.1:1",
        "STARLING_REGISTRY__URL": "http://127.0.0.1:1",
        "STARLING_CASSANDRA__CONTACT_POINTS": "127.0.0.1",
        "STARLING_CASSANDRA__PORT": "1",
        "STARLING_HTTP__PORT": str(free_port()),
        "STARLING_INSTANCE_ID": "image-0",
        "STARLING_WRITE_KEYS": "key=default",
        "STARLING_TOKENS": "token=admin:default",
        "STARLING_LINKS__KEYS": f"2026={'B' * 43}=",
        "STARLING_NAMESPACE": "marketing",
        "STARLING_PROFILE_PARTITIONS": "8",
        "STARLING_SEGMENTER__STATEFUL_SET": "prod-starling-segmenter",
        "STARLING_CHANNEL": "webhook",
        "STARLING_ACKNOWLEDGE_SINGLE_COPY": "true",
        "STARLING_STATE_DIR": f"{tmp_path}/state",
        "STARLING_CHECKPOINT_DIR": f"{tmp_path}/checkpoint",
        "STARLING_SPARK_JARS": "/opt/jars",
    }


def await_answer(process: "subprocess.Popen[bytes]", port: int, log: Path) -> str:
    """Return the answer of the health server, or the line that names the missing server. Raises: AssertionError with the log."""
    while True:
        ended = process.poll() is not None
        text = log.read_text(errors="replace")
        if line := NO_PEER.search(text):
            return line[0]
        assert not ended, text[-4000:]
        try:
            with urlopen(f"http://127.0.0.1:{port}/healthz", timeout=2) as answer:
                return str(answer.read().decode())
        except (URLError, TimeoutError, ConnectionError):
            pass
        try:
            process.wait(0.2)
        except subprocess.TimeoutExpired:
            continue


def started(start: Callable[[Mapping[str, str], Path], "subprocess.Popen[bytes]"], values: Mapping[str, str], log: Path) -> str:
    """Start a process, return its first sign of life, and end it."""
    process = start(values, log)
    try:
        return await_answer(process, int(values["STARLING_HTTP__PORT"]), log)
    finally:
        end(process)


@pytest.mark.long
@pytest.mark.skipif(ALL, reason="make test-images executes all steps of the Dockerfile")
def test_the_environment_of_an_image_starts_its_process(tmp_path: Path) -> None:
    wheels, home = tmp_path / "wheels", tmp_path / "home"
    build = ["pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(wheels), str(ROOT)]
    subprocess.run([sys.executable, "-m", *build], check=True, env={**os.environ, "STARLING_NATIVE_WHEEL": "1"})
    places = {"STARLING_WHEEL_DIR": str(wheels), "STARLING_INSTALL_DIR": str(home)}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    subprocess.run(
        ["docker/install.sh", QUICK], cwd=ROOT, check=True, stdout=subprocess.DEVNULL, env={**os.environ, **places, "PATH": path}
    )

    def start(values: Mapping[str, str], log: Path) -> "subprocess.Popen[bytes]":
        with log.open("wb") as output:
            command = [str(home / "bin/python"), "-m", f"starling_{QUICK}"]
            return subprocess.Popen(command, cwd=tmp_path, env=dict(values), stdout=output, stderr=subprocess.STDOUT)

    assert re.search(r"status|127\.0\.0\.1", started(start, settings(tmp_path), tmp_path / "log"))


@pytest.fixture(scope="module")
def image_build(tmp_path_factory: pytest.TempPathFactory) -> ImageBuild:
    if reason := obstacle():
        pytest.fail(reason)
    return ImageBuild(tmp_path_factory.mktemp("images"), STAGES)


@pytest.mark.skipif(not ALL, reason="make test-images")
def test_an_argument_of_the_build_chooses_the_jars(tmp_path_factory: pytest.TempPathFactory) -> None:
    build = ImageBuild(tmp_path_factory.mktemp("jars"), STAGES, {"JAR_BUNDLES": "jdbc"})
    assert [path.name for path in (build.image("jars").layer / "opt/jars").iterdir()] == [
        path.name for path in runtime_jars("jdbc")
    ]


@pytest.mark.skipif(not ALL, reason="make test-images")
@pytest.mark.parametrize("target", TARGETS)
def test_the_image_starts_its_process(image_build: ImageBuild, target: str, tmp_path: Path) -> None:
    image = image_build.image(target)
    assert image.user == "10001:10001"

    def start(values: Mapping[str, str], log: Path) -> "subprocess.Popen[bytes]":
        return image_build.start(target, ARGUMENTS.get(target, []), values, log)

    assert re.search(r"status|127\.0\.0\.1|Broker|Kubernetes", started(start, settings(Path("/tmp")), tmp_path / "log"))
