"""Prints the measurements of the repository's structure: `python -m tools.house_table [ROOT …]`, a column for each checkout.

Compare with an older commit: `git worktree add --detach /tmp/before COMMIT`, then `python -m tools.house_table /tmp/before .`.
"""

import argparse
import ast
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.architecture.vocabulary import checked_files, violations
from tools.dead_code import ROOT, sources

PRODUCT: Final = ("libs/", "services/", "spark/", "apps/")
PAGES: Final = ("docs/explanation/architecture.md", "docs/architecture.md")
"""The page with the lists of files that an event passes, newest place first."""


class Largest(NamedTuple):
    """A name and its size."""

    size: int
    name: str

    def __str__(self) -> str:
        """Return a cell of the table."""
        return f"{self.size} (`{self.name}`)"


def product(root: Path) -> dict[str, str]:
    """Return path -> text of each module of the product in a checkout."""
    paths = [path for path in sources(root) if path.startswith(PRODUCT) and "/starling_" in path]
    return {path: (root / path).read_text() for path in paths}


def measurements(root: Path) -> dict[str, str]:
    """Return measurement -> value of a checkout."""
    texts = product(root)
    packages, found = modules(texts), functions(texts)
    files = [Largest(text.count("\n"), path) for path, text in texts.items()]
    return {
        "packages": str(len(packages)),
        "modules of the largest package": str(max(packages)),
        "packages of more than 12 modules": str(sum(one.size > 12 for one in packages)),
        "files of an event's longest way: a service, the stream layer": _ways(root),
        "retired words": str(sum(1 for path in checked_files(root) for _ in violations(path, (root / path).read_text()))),
        "lines of the largest function": str(max(found)),
        "functions of more than 40 lines": str(sum(one.size > 40 for one in found)),
        "lines of the largest file": str(max(files)),
        "lines of the product": f"{sum(one.size for one in files):,}",
    }


def modules(texts: Mapping[str, str]) -> list[Largest]:
    """Return each package with the number of its modules, `__init__.py` not included. `texts`: path -> text."""
    counted = Counter(str(Path(path).parent) for path in texts if not path.endswith("__init__.py"))
    return [Largest(count, name) for name, count in counted.items()]


def functions(texts: Mapping[str, str]) -> list[Largest]:
    """Return each function with the number of its lines. `texts`: path -> text."""
    return [
        Largest((node.end_lineno or node.lineno) - node.lineno + 1, f"{path}:{node.name}")
        for path, text in texts.items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def _ways(root: Path) -> str:
    """Return the lengths of the longest lists of files, of a service and of the stream layer."""
    page = next((root / name for name in PAGES if (root / name).exists()), None)
    parts = re.split(r"^### (.+)\n", page.read_text() if page else "", flags=re.MULTILINE)[1:]
    lengths = {title: len(re.findall(r"^\d+\. `", body, re.MULTILINE)) for title, body in zip(parts[::2], parts[1::2], strict=True)}
    layer = lengths.pop("Stream layer", 0)
    return f"{max(lengths.values())}, {layer}" if layer else "not listed"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a Markdown table; return exit code 0."""
    parser = argparse.ArgumentParser(prog="house_table", description="Measurements of the structure, a column for each checkout.")
    parser.add_argument("roots", type=Path, nargs="*", default=[ROOT], help="checkouts (default: this one)")
    columns = [measurements(root.resolve()) for root in parser.parse_args(arguments).roots]
    for name in columns[0]:
        sys.stdout.write(f"| {name} | " + " | ".join(column[name] for column in columns) + " |\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
