"""Draws docstrings and user-facing texts at random, for a review of the prose: `python -m tools.prose_sample --seed N`.

The same seed draws the same texts from the same commit. The page docs/explanation/house.md has the results of the reviews.
"""

import argparse
import ast
import inspect
import random
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from tools.dead_code import ROOT, sources

PRODUCT: Final = ("libs/", "services/", "spark/", "apps/")
_SHORTEST: Final = 20
"""Characters of a text that is worth a review: shorter ones are names."""

_DESCRIBING: Final = frozenset({"description", "help", "summary", "short_help"})
_YAML_TEXT: Final = re.compile(r"(?:^|[ {])(?:help|summary): [\"'](.+?)[\"'](?:[,}]|$)")
_RULES: Final = ("schemas/avro/telemetry.yaml", "helm/starling/rules/alerts.yaml")


class Text(NamedTuple):
    """A text and its first line, from 1."""

    path: str
    line: int
    text: str

    def __str__(self) -> str:
        """Return the place, and the text indented below it."""
        return f"{self.path}:{self.line}\n    " + self.text.replace("\n", "\n    ")


def docstrings(path: str, tree: ast.Module) -> Iterator[Text]:
    """Yield the docstrings of a module, of its classes and functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found = ast.get_docstring(node)
            if found is not None:
                yield Text(path, node.body[0].lineno, found)


def user_facing(path: str, tree: ast.Module) -> Iterator[Text]:
    """Yield the descriptions and help texts of a module, and the messages of the errors that it raises."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            for argument in node.keywords:
                if argument.arg in _DESCRIBING and (found := _text_of(argument.value)):
                    yield Text(path, argument.value.lineno, found)
        elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            for value in node.exc.args:
                if found := _text_of(value):
                    yield Text(path, value.lineno, found)


def _text_of(node: ast.expr) -> str:
    """Return the text of a literal, with the expressions of a formatted one in braces; empty for another expression."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        found = node.value
    elif isinstance(node, ast.JoinedStr):
        found = "".join(
            "{" + ast.unparse(part.value) + "}" if isinstance(part, ast.FormattedValue) else str(ast.literal_eval(part))
            for part in node.values
        )
    else:
        return ""
    return inspect.cleandoc(found) if len(found) >= _SHORTEST and " " in found else ""


def rule_texts() -> Iterator[Text]:
    """Yield the help texts of the metrics and the summaries of the alerts."""
    for path in _RULES:
        for number, line in enumerate((ROOT / path).read_text().splitlines(), start=1):
            if found := _YAML_TEXT.search(line):
                yield Text(path, number, found[1])


def drawn(seed: int, count: int) -> tuple[list[Text], list[Text]]:
    """Return `count` docstrings and `count` user-facing texts of the product, each in the order of their places."""
    trees = [(path, ast.parse((ROOT / path).read_text())) for path in sorted(sources()) if path.startswith(PRODUCT)]
    chance = random.Random(seed)  # noqa: S311  # a sample, not a secret
    described = [text for path, tree in trees for text in docstrings(path, tree)]
    shown = [*(text for path, tree in trees for text in user_facing(path, tree)), *rule_texts()]
    return sorted(chance.sample(described, count)), sorted(chance.sample(shown, count))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the drawn texts; return exit code 0."""
    parser = argparse.ArgumentParser(prog="prose_sample", description="Docstrings and user-facing texts, drawn at random.")
    parser.add_argument("--seed", type=int, required=True, help="seed of the drawing")
    parser.add_argument("--count", type=int, default=40, help="texts of each kind (default: %(default)d)")
    options = parser.parse_args(arguments)
    for title, texts in zip(("Docstrings", "User-facing texts"), drawn(options.seed, options.count), strict=True):
        sys.stdout.write(f"# {title}\n\n" + "".join(f"{text}\n\n" for text in texts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
