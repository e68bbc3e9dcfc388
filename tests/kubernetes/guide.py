"""Each command of docs/how-to/run-on-kubernetes.md, in order, on a release whose pods are processes. `make test-k8s` runs it."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from starling_local.testing import Addresses, embedded
from tests.kubernetes.control_plane import ROOT, ControlPlane, tools
from tests.kubernetes.process_kubelet import ProcessKubelet, explained

PAGE: Final = ROOT / "docs/how-to/run-on-kubernetes.md"
OWN: Final = "**Your own"
LOSS: Final = "Restore"
"""The heading before which Cassandra is lost."""
SECONDS: Final = 3600
_PART: Final = re.compile(r"^## (?P<heading>[^\n]+)$|^```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_TESTED: Final = re.compile(r"^TEST SUITE: +starling-test\n(?:Last .+\n)*Phase: +Succeeded$", re.MULTILINE)
"""A test of the release that succeeded. Helm names the steps of an installation as test suites too."""
_LOSE: Final = """
from starling_common.cassandra.sessions import open_session
from starling_common.settings import Cassandra
session = open_session(Cassandra(contact_points="{host}", port={port}))
session.execute("DROP KEYSPACE starling", timeout=120)
session.cluster.shutdown()
"""


class Block(NamedTuple):
    """A block of the page, under its heading. `own`: its paragraph states that it is the operator's own."""

    heading: str
    kind: str
    text: str
    own: bool


def blocks() -> list[Block]:
    """Return the blocks of the page."""
    page, heading, found, end = PAGE.read_text(), "", [], 0
    for part in _PART.finditer(page):
        if part["heading"] is not None:
            heading = part["heading"]
        else:
            *_, paragraph = page[end : part.start()].strip().split("\n\n")
            found.append(Block(heading, part["kind"], part["text"], paragraph.startswith(OWN)))
        end = part.end()
    return found


def test_every_block_is_run_but_those_that_the_page_calls_the_operators_own() -> None:
    found = blocks()
    assert {(block.kind, block.own) for block in found} == {("sh", False), ("console", True)}
    assert sum(block.own for block in found) == 3
    assert [block.heading for block in found if block.kind == "sh"][-1] == LOSS
    commands = [line for block in found if block.kind == "sh" for line in block.text.splitlines()]
    first = {verb: next(number for number, line in enumerate(commands) if line.startswith(f"helm {verb} ")) for verb in
             ("install", "upgrade", "rollback")}  # fmt: skip
    assert sorted(first, key=first.__getitem__) == ["install", "upgrade", "rollback"]


@pytest.mark.timeout(SECONDS)
def test_every_command_of_the_guide_works(
    plane: ControlPlane, node: ProcessKubelet, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = tmp_path / "checkout"
    here.mkdir()
    (here / "helm").symlink_to(ROOT / "helm")
    with embedded({"kafka", "registry", "cassandra"}, tmp_path / "parts") as parts, explained(node):
        given = own_values(parts)
        assert set(re.findall(r"^export (\w+)=", blocks()[0].text, re.MULTILINE)) == set(given)
        path = os.pathsep.join([str(programs(tmp_path / "bin")), str(Path(sys.executable).parent), os.environ["PATH"]])
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("STARLING_")}
        environment = {
            **inherited, **given, "PATH": path, "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config"),
            # Not below HOME: Helm of the tests is there.
            "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache"),
            "KUBECONFIG": str(plane.kubeconfig),
            **{f"HELM_{name}_HOME": str(tmp_path / "helm" / name.lower()) for name in ("CACHE", "CONFIG", "DATA")},
        }  # fmt: skip
        commands = tmp_path / "guide.sh"
        commands.write_text(script(blocks(), parts))
        done = subprocess.run(
            ["bash", str(commands)], cwd=here, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, check=False, timeout=SECONDS,
        )  # fmt: skip
        with capsys.disabled():
            sys.stdout.write(f"\n{done.stdout}")
        assert done.returncode == 0, done.stdout[-6_000:]
    assert len(_TESTED.findall(done.stdout)) == 3
    assert "segment buyers: unchanged" in done.stdout
    assert sorted(done.stdout.splitlines()[-2:]) == ["ada", "grace"]


def own_values(parts: Addresses) -> dict[str, str]:
    """Return what the first block of the page leaves to the operator."""
    return {
        "KAFKA": parts.kafka,
        "REGISTRY_URL": parts.registry_url,
        "CASSANDRA": parts.cassandra_host,
        "CASSANDRA_PORT": str(parts.cassandra_port),
        "SIZE": "helm/starling/ci/demo-values.yaml",
    }


def script(found: Sequence[Block], parts: Addresses) -> str:
    """Return the commands of the page as one script, with the loss of Cassandra before the restore."""
    lose = _LOSE.format(host=parts.cassandra_host, port=parts.cassandra_port)
    lines, lost = ["set -euo pipefail"], False
    for block in found:
        if block.heading == LOSS and not lost:
            lines.append(f"{sys.executable} - <<'LOSS'\n{lose}LOSS\necho 'Cassandra is lost'")
            lost = True
        if block.kind == "sh":
            lines += [f"echo '--- {block.heading}'", block.text]
    return "\n".join(lines)


def programs(directory: Path) -> Path:
    """Return a directory with `helm` and `kubectl`, at the versions of the tests."""
    directory.mkdir()
    (directory / "kubectl").symlink_to(tools()["kubectl"])
    helm = directory / "helm"
    helm.write_text(f'#!/bin/sh\nHELM_MAJOR=3 exec {ROOT}/tools/helm.sh "$@"\n')
    helm.chmod(0o700)
    return directory
