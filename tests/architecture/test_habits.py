"""Habits of the tests: no sleep proves absence, and no test module imports from another one."""

import ast
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
_REASON = re.compile(r"# sleep: \S")


class Fault(NamedTuple):
    """A line that breaks a habit; `line` counts from 1."""

    line: int
    reason: str


def sleeps(text: str) -> Iterator[Fault]:
    """Yield the sleeps outside of a polling loop, without those whose line ends with `# sleep: <reason>`.

    A polling loop is a `while` with a condition on something else than time, or any loop that a `return` or `break` ends.
    `sleep(0)` is a turn of the event loop and no delay.
    """
    lines = text.splitlines()
    polling: set[ast.AST] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.While, ast.For, ast.AsyncFor)) and _is_polling(node):
            polling.update(ast.walk(node))
        if isinstance(node, ast.Call) and _is_sleep(node) and node not in polling and not _REASON.search(lines[node.lineno - 1]):
            yield Fault(node.lineno, "a sleep outside of a polling loop: wait for a record, an offset or a call that comes later")


def _is_sleep(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return name == "sleep" and not (call.args and isinstance(call.args[0], ast.Constant) and call.args[0].value == 0)


def _is_polling(loop: ast.While | ast.For | ast.AsyncFor) -> bool:
    if isinstance(loop, ast.While) and not isinstance(loop.test, ast.Constant) and "monotonic" not in ast.unparse(loop.test):
        return True
    return any(isinstance(node, (ast.Return, ast.Break)) for node in ast.walk(loop))


def imports(text: str) -> Iterator[Fault]:
    """Yield the imports from a test module, and those of a private name of another module of the tests."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            modules, names = [name.name for name in node.names], []
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules, names = (
                [node.module, *(f"{node.module}.{name.name}" for name in node.names)],
                [name.name for name in node.names],
            )
        else:
            continue
        if any(module.rpartition(".")[2].startswith("test_") for module in modules):
            yield Fault(node.lineno, "an import from a test module: move what both need to a module of its own")
        elif modules[0].partition(".")[0] == "tests" and any(name.startswith("_") for name in names):
            yield Fault(node.lineno, "an import of a private name: remove its underscore")


def modules_of_tests() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "tests/*.py"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [ROOT / name for name in listed.split() if (ROOT / name).exists()]


@pytest.mark.parametrize("habit", [sleeps, imports])
def test_the_tests_have_the_habit(habit: Callable[[str], Iterator[Fault]]) -> None:
    modules = modules_of_tests()
    assert len(modules) > 200
    found = [f"{path.relative_to(ROOT)}:{fault.line}: {fault.reason}" for path in modules for fault in habit(path.read_text())]
    assert found == [], "\n".join(found)


@pytest.mark.parametrize(
    "text",
    [
        "send()\ntime.sleep(1.0)\nassert received == []",
        "async def scenario():\n    await asyncio.sleep(0.5)\n    assert not done",
        "for _ in range(20):\n    sleep(0.01)\nassert not done",
        "while time.monotonic() < deadline:\n    assert not done\n    time.sleep(0.1)",
        "while True:\n    time.sleep(1)",
        "time.sleep(1)  # sleep:",
    ],
)
def test_a_planted_sleep_is_found(text: str) -> None:
    [fault] = sleeps(text)
    assert "sleep(" in text.splitlines()[fault.line - 1]


@pytest.mark.parametrize(
    "text",
    [
        "while not done():\n    assert time.monotonic() < deadline\n    time.sleep(0.1)",
        "for _ in range(100):\n    if done():\n        break\n    time.sleep(0.1)",
        "def wait():\n    while True:\n        if done():\n            return\n        time.sleep(0.1)",
        "await asyncio.sleep(0)",
        "time.sleep(0.3)  # sleep: the duration of the outage",
        "asleep(1)",
    ],
)
def test_polling_and_a_reason_pass(text: str) -> None:
    assert list(sleeps(text)) == []


@pytest.mark.parametrize(
    "text",
    [
        "from tests.unit.api.test_api_app import call",
        "from tests.unit.api import test_api_app",
        "import tests.unit.api.test_api_app",
        "def late():\n    from tests.unit.api.test_api_app import call",
        "from tests.unit.segmenter.segmenting import _CODECS as CODECS",
    ],
)
def test_a_planted_import_is_found(text: str) -> None:
    assert len(list(imports(text))) == 1


@pytest.mark.parametrize(
    "text", ["from tests.unit.api.memory import World", "import tests.conftest", "from functools import _make_key", "import json"]
)
def test_an_import_from_a_helper_passes(text: str) -> None:
    assert list(imports(text)) == []


def test_every_program_that_a_target_of_make_runs_exists() -> None:
    listed = subprocess.run(["make", "--no-print-directory", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    targets = [line.split()[0] for line in listed.splitlines() if line]
    recipes = subprocess.run(
        ["make", "--no-print-directory", "--dry-run", "--old-file=setup", *targets],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    paths = set(re.findall(r"(?<![\w/])(?:tests|tools|benchmarks)/[\w/]+\.(?:py|sh)\b", recipes))
    assert {"tests/property/segments/test_segments_preview.py", "benchmarks/stream.py"} <= paths
    modules = re.findall(r"-m ((?:tests|tools)[\w.]+)", recipes)
    paths |= {module.replace(".", "/") + ".py" for module in modules}
    assert sorted(path for path in paths if not (ROOT / path).exists()) == []
