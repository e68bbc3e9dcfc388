"""Each tutorial and how-to guide is walked as a new user would: its files are saved, its commands run, in a shell without settings.

Blocks marked `sh` are run. Blocks marked `console` need a cluster or values of the reader, and are not.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from starling_local.testing import free_base

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
ON_KUBERNETES = DOCS / "how-to/run-on-kubernetes.md"
"""Walked by `make test-k8s`."""
PAGES = [
    *sorted(DOCS.glob("tutorial/*.md"), reverse=True),
    *(page for page in sorted(DOCS.glob("how-to/**/*.md")) if page != ON_KUBERNETES),
]
"""Pages that start more Spark jobs come last."""

_LONG = {
    "how-to/audience-sync.md", "how-to/backup.md", "how-to/channel-author.md", "how-to/command-line.md",
    "how-to/feeds.md", "how-to/kafka-connect.md", "how-to/marketer.md", "how-to/operator.md",
    "how-to/protocol-buffers.md", "how-to/provider-callbacks.md", "how-to/push.md", "how-to/secrets.md",
    "how-to/sql-traits.md", "how-to/sql-views.md", "how-to/webhooks.md", "tutorial/first-segment.md",
    "tutorial/stateful-service.md",
}  # fmt: skip
WALKED = [
    page
    for page in PAGES
    if os.environ.get("STARLING_GUIDES") == "all"
    or ("spark" not in page.relative_to(DOCS).parts and page.relative_to(DOCS).as_posix() not in _LONG)
]
"""`make guides` walks all pages; `make test` leaves out those of the Spark jobs and the longest others, a minute or more each."""
EXPECTED = {
    "tutorial/first-segment.md": ['"success":true', "\nada\n", '"status":"ENTERED"'],
    "tutorial/stateful-service.md": ['"streak_days":1'],
    "how-to/protocol-buffers.md": ['"success":true'],
    "how-to/spark/imports.md": ["sent2,rejected1", "missing_id", "\nada\n"],
    "how-to/spark/exports.md": ["members1done"],
    "how-to/spark/data-engineers.md": [
        "\nida2150.0\nole140.0\n",
        "\n3ticketsof2users\n",
        '"ticket-revenue":150.0',
        "\nida2150.0\nole2240.0\npia160.0\n",
        "bookers1done",
    ],
    "how-to/spark/lineage.md": ["\nlakeSTART", "\nlakeRUNNING", "\nlakeCOMPLETE", "\nprofilesSTART"],
    "how-to/kafka-connect.md": ["SegmentMembershipChanged"],
    "how-to/secrets.md": ["everysecretisencryptedwiththekey2027"],
    "how-to/provider-callbacks.md": ["1deadletter"],
    "how-to/command-line.md": ["segmentbuyerschanged", "segmentbuyers:changed,version"],
    "how-to/audience-sync.md": ['"secret":"whsec_', '"secret":"***"'],
    "how-to/webhooks.md": ["segment.enteredhook-buyershook-adateamgrowth", "hook-buyershook-grace"],
}
"""What a page promises to print, without spaces."""
_STEP = re.compile(
    r"^```sh\n(?P<commands>.*?)^```$|^`(?P<path>[\w/]+\.py)`[^\n]*:\n\n```python\n(?P<source>.*?)^```$", re.MULTILINE | re.DOTALL
)
_PORT = re.compile(r"\b18(?:0[89]|1[0-7])\d\b")
_SHELL = """
set -euo pipefail
trap '[ -z "$(jobs -p)" ] || kill $(jobs -p)' EXIT
make() {{ grep -q "^$1:" Makefile; }}
curl() {{ command curl --silent --show-error --fail-with-body "$@" && echo; }}
starling() {{
  if [ "$1" = up ]; then shift; set -- up --port-base {base} --timeout 600 "$@"; fi
  command starling "$@"
}}
"""
"""The ports of the page are moved to free ones, and an HTTP error ends the walk; `make setup` has been run before any test."""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, int]]:
    """A directory that looks like the root of the repository and can be written to, and a base for the ports."""
    here = tmp_path_factory.mktemp("checkout")
    for entry in ROOT.iterdir():
        if entry.name not in {".git", ".starling", "out"}:
            (here / entry.name).symlink_to(entry)
    with free_base() as base:
        yield here, base
        _bash(here, "source .venv/bin/activate; [ ! -d .starling ] || starling down", base)


def test_every_guide_begins_with_commands_that_are_run() -> None:
    first = {page.name: re.findall(r"^```(.*)$", page.read_text(), re.MULTILINE)[:1] for page in PAGES}
    assert {name: kind for name, kind in first.items() if kind != ["sh"]} == {}


@pytest.mark.parametrize("page", WALKED, ids=lambda page: str(page.relative_to(DOCS)))
def test_a_guide_can_be_followed(page: Path, checkout: tuple[Path, int]) -> None:
    here, base = checkout
    text = _PORT.sub(lambda port: str(int(port[0]) - 18_080 + base), page.read_text())
    script = []
    for step in _STEP.finditer(text):
        if step["path"]:
            (here / step["path"]).parent.mkdir(exist_ok=True)
            (here / step["path"]).write_text(step["source"])
        else:
            script.append(step["commands"])
    more = _with_edited_catalogue(here, text)
    if "starling new channel" in text:
        here, more = _with_copied_sources(here)
    done = _bash(here, "".join(script), base, **more)
    assert done.returncode == 0, done.stdout[-6_000:]
    printed = done.stdout.replace(" ", "")
    assert [words for words in EXPECTED.get(str(page.relative_to(DOCS)), []) if words not in printed] == [], done.stdout[-6_000:]


def _with_edited_catalogue(here: Path, text: str) -> dict[str, str]:
    """Where a page adds to the catalogue of topics, which its reader does by hand: the environment for a copy with that edit."""
    blocks = re.findall(r"^```yaml\n(topics:.*?)^```$", text, re.MULTILINE | re.DOTALL)
    if not blocks:
        return {}
    copy = here / "edited"
    shutil.copytree(ROOT / "libs/common", copy / "libs/common", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "schemas", copy / "schemas")
    path = copy / "schemas/avro/topics.yaml"
    catalogue = yaml.safe_load(path.read_text())
    for added in map(yaml.safe_load, blocks):
        catalogue["topics"] |= added["topics"]
        catalogue["stages"] += added["stages"]
    path.write_text(yaml.safe_dump(catalogue))
    return {"PYTHONPATH": str(copy / "libs/common")}


def _with_copied_sources(here: Path) -> tuple[Path, dict[str, str]]:
    """Return a directory as `here` with copies of what its reader changes, and the environment in which they are imported."""
    copy, copied = here / "copy", {"services", "libs", "schemas", "docs", "tests", "tools", "helm"}
    copy.mkdir()
    for entry in ROOT.iterdir():
        if entry.name in copied:
            ignored = shutil.ignore_patterns("__pycache__", "*.so", ".compiled")
            shutil.copytree(entry, copy / entry.name, ignore=ignored)
        elif entry.name not in {".git", ".starling", "out"}:
            (copy / entry.name).symlink_to(entry)
    changed = (copy, *(copy / name for name in ("services/delivery", "libs/campaigns", "libs/common")))
    return copy, {"PYTHONPATH": os.pathsep.join(map(str, changed))}


def _bash(here: Path, script: str, base: int, **more: str) -> subprocess.CompletedProcess[str]:
    kept = ("HOME", "JAVA_HOME", "LANG", "TMPDIR", "STARLING_JOB_NICE")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    paths = os.environ.get("PATH", os.defpath).split(os.pathsep)
    environment |= {"PATH": os.pathsep.join(path for path in paths if not Path(path).is_relative_to(ROOT)), **more}
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-c", _SHELL.format(base=base) + script],
        cwd=here, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=800,
    )  # fmt: skip
