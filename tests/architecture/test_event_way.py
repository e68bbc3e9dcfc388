"""The page on the architecture names each file that an event passes; the lists are compared with the imports of those files."""

import ast
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "architecture.md"
STREAM_LAYER = "Stream layer"
MOST_FILES_STREAM_LAYER = 7
MOST_FILES_SERVICE = 4


def ways(page: str) -> dict[str, list[str]]:
    """Return title -> paths, for each list of the section "One event's way"."""
    section = re.search(r"^## One event's way\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    assert section is not None, f'{PAGE} has no section "One event\'s way"'
    parts = re.split(r"^### (.+)\n", section[1], flags=re.MULTILINE)[1:]
    return {title: re.findall(r"^\d+\. `([^`]+)`", body, re.MULTILINE) for title, body in zip(parts[::2], parts[1::2], strict=True)}


def module_of(path: str) -> str:
    """Return the module's name: the path from the package `starling_…` on."""
    parts = Path(path).with_suffix("").parts
    package = next(position for position, part in enumerate(parts) if part.startswith("starling_"))
    return ".".join(parts[package:]).removesuffix(".__init__")


def imports_of(source: str) -> frozenset[str]:
    """Return the modules that are imported at run time; of `from a import b` both `a` and `a.b`."""
    return frozenset(_imports(ast.parse(source).body))


def _imports(nodes: Sequence[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)):
            yield from _imports(list(ast.iter_child_nodes(node)))


def violations(title: str, paths: Sequence[str], root: Path = ROOT) -> list[str]:
    """Return what is wrong with one list: its length, a missing file, or neighbours that no import joins."""
    most = MOST_FILES_STREAM_LAYER if title == STREAM_LAYER else MOST_FILES_SERVICE
    found = [] if 0 < len(paths) <= most else [f"{title}: {len(paths)} files, 1 to {most} are allowed"]
    missing = [path for path in paths if not (root / path).is_file()]
    if missing:
        return [*found, *(f"{title}: {path} does not exist" for path in missing)]
    imports = {path: imports_of((root / path).read_text()) for path in paths}
    unjoined = [
        (one, two) for one, two in pairwise(paths) if module_of(two) not in imports[one] and module_of(one) not in imports[two]
    ]
    return [*found, *(f"{title}: neither {one} nor {two} imports the other" for one, two in unjoined)]


LISTED = ways(PAGE.read_text())


def test_the_stream_layer_is_listed() -> None:
    assert STREAM_LAYER in LISTED


def test_each_service_is_listed() -> None:
    listed = {Path(path).parts[1] for paths in LISTED.values() for path in paths if path.startswith("services/")}
    assert listed == {path.name for path in (ROOT / "services").iterdir() if (path / f"starling_{path.name}").is_dir()}


@pytest.mark.parametrize("title", LISTED)
def test_an_event_passes_the_files_that_the_page_names(title: str) -> None:
    assert violations(title, LISTED[title]) == []


def test_a_list_is_read_from_its_own_section_only() -> None:
    other, own = "### X\n\n1. `a.py`\n\n", "Rule.\n\n### Y\n\n1. `b.py`: reads.\n2. `c.py`: folds\n   `d.py`.\n\n"
    assert ways(f"## Stores\n\n{other}## One event's way\n\n{own}## Z\n\n{other}") == {"Y": ["b.py", "c.py"]}


@pytest.fixture
def service(tmp_path: Path) -> Path:
    """Return a directory with a service of five files: each but `apart` imports the next, and `last` imports the one before it."""
    package = tmp_path / "starling_x"
    package.mkdir()
    sources = {
        "first": "from starling_x.second import fold",
        "second": "def fold() -> None:\n    from starling_x import third",
        "third": "",
        "last": "import starling_x.third",
        "apart": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from starling_x.first import fold",
    }
    for name, source in sources.items():
        (package / f"{name}.py").write_text(source + "\n")
    return tmp_path


def named(*names: str) -> list[str]:
    return [f"starling_x/{name}.py" for name in names]


def test_neighbours_are_joined_by_an_import_in_one_direction_or_the_other(service: Path) -> None:
    assert violations("Service", named("first", "second", "third", "last"), service) == []


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        pytest.param(("first", "third"), "neither", id="an omitted file"),
        pytest.param(("apart", "first"), "neither", id="an import for the type checker alone"),
        pytest.param(("first", "second", "gone"), "does not exist", id="a file that was moved"),
        pytest.param(("first", "second", "third", "last", "third"), "1 to 4", id="a detour"),
        pytest.param((), "1 to 4", id="an empty list"),
    ],
)
def test_a_planted_violation_is_found(names: Sequence[str], expected: str, service: Path) -> None:
    [found] = violations("Service", named(*names), service)
    assert expected in found


def test_the_stream_layer_may_have_seven_files_and_not_eight(service: Path) -> None:
    there_and_back = named("first", "second", "first", "second", "first", "second", "first", "second")
    assert violations(STREAM_LAYER, there_and_back[:7], service) == []
    assert violations(STREAM_LAYER, there_and_back, service) == ["Stream layer: 8 files, 1 to 7 are allowed"]
