"""Makes the peers ready that are not Python packages of ours: once, into out/peers; nothing is done when all is there.

Kafka Streams: its libraries and classes by Maven (needs a JDK). Quix Streams: a virtual environment of its own, because
it needs older versions of packages than we do.
"""

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
OUT = HERE.parent.parent / "out" / "peers"
_COPY_LIBRARIES = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"


class PeerUnavailable(Exception):
    """A peer could not be prepared; the text states the cause and the cure."""


def kafka_streams() -> str:
    """The class path of the Kafka Streams peer. Raises: PeerUnavailable."""
    project = HERE / "kafka_streams"
    home = OUT / f"kafka-streams-{_digest(project)}"
    if not home.is_dir():
        if shutil.which("javac") is None or shutil.which("mvn") is None:
            raise PeerUnavailable(
                "Kafka Streams is built by Maven with a JDK: install them (Debian: openjdk-17-jdk-headless maven)"
            )
        scratch = _fresh(home)
        options = [f"-Dpeer.out={scratch}", f"-DoutputDirectory={scratch / 'libs'}", "-DincludeScope=runtime"]
        _run(["mvn", "-q", "-B", "-f", str(project / "pom.xml"), "compile", _COPY_LIBRARIES, *options])
        scratch.rename(home)
    return f"{home / 'classes'}:{home / 'libs'}/*"


def quix_streams() -> str:
    """The Python interpreter that has Quix Streams. Raises: PeerUnavailable."""
    requirements = HERE / "quix_streams" / "requirements.txt"
    home = OUT / f"quix-streams-{_digest(requirements)}"
    python = home / "bin" / "python"
    # A virtual environment cannot be moved: a file that is written last marks it as complete.
    whole = home / ".whole"
    if not whole.exists():
        shutil.rmtree(home, ignore_errors=True)
        _run([sys.executable, "-m", "venv", str(home)])
        _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", str(requirements)])
        whole.touch()
    return str(python)


def _digest(path: Path) -> str:
    files = [path] if path.is_file() else sorted(found for found in path.rglob("*") if found.suffix in {".java", ".xml"})
    return hashlib.sha256(b"".join(found.read_bytes() for found in files)).hexdigest()[:12]


def _fresh(home: Path) -> Path:
    scratch = home.with_name(f"{home.name}.unfinished")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    return scratch


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if "ERROR" in line.upper()]
        raise PeerUnavailable(f"{' '.join(command[:5])} … failed: {' '.join(lines[:3]) or 'no message'}")


if __name__ == "__main__":
    print(kafka_streams())
    print(quix_streams())
