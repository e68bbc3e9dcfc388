"""Every command of `starling` in a guide is one that the command line takes, also in blocks that no test runs."""

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from starling_cli.app import build_app, options_first
from starling_stream.inspect.operations import _parser
from tests.conftest import ROOT

DOCS = ROOT / "docs"
OPERATIONS = "starling_stream.inspect.operations"


def commands() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield (page, words) of each `starling` and each operation of a stage in a block of commands."""
    for path in sorted(DOCS.rglob("*.md")):
        for block in re.findall(r"^```(?:sh|console)\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL):
            for line in re.sub(
                r"\\\n\s*", " ", re.sub(r"<<'(\w+)'.*?^\1$", "", block, flags=re.MULTILINE | re.DOTALL)
            ).splitlines():
                for words in _simple(line) if "starling" in line and line.count("'") % 2 == 0 else ():
                    yield str(path.relative_to(DOCS)), words


def _simple(line: str) -> Iterator[tuple[str, ...]]:
    """Yield the words of each simple command of a line: after its variables, up to a redirection."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>()")
    lexer.whitespace_split = True
    words: list[str] = []
    for token in [*lexer, ";"]:
        if not set(token) <= set("|&;<>()"):
            words.append(token)
            continue
        while words and re.fullmatch(r"[A-Z_]+=.*|\{", words[0]):
            words.pop(0)
        if words[:1] == ["starling"] or OPERATIONS in words:
            yield tuple(words)
        words = []


COMMANDS = sorted(set(commands()))


def test_the_pages_have_commands() -> None:
    assert len(COMMANDS) > 100
    assert {page for page, _ in COMMANDS} >= {
        "how-to/operator.md",
        "how-to/backup.md",
        "how-to/kubernetes.md",
        "how-to/command-line.md",
    }


@pytest.mark.parametrize(("page", "words"), COMMANDS, ids=lambda one: one if isinstance(one, str) else " ".join(one))
def test_a_command_is_taken(page: str, words: tuple[str, ...]) -> None:
    if OPERATIONS in words:
        _parser().parse_args(words[words.index(OPERATIONS) + 1 :])
        return
    _taken(typer.main.get_command(build_app()), options_first(words[1:]))


def test_a_command_that_does_not_exist_is_found() -> None:
    for words in (["segments", "forget"], ["segments", "list", "--yaml"], ["status", "now"]):
        with pytest.raises(Exception, match=r"No such|no such|unexpected"):
            _taken(typer.main.get_command(build_app()), words)


def _taken(command: Any, words: list[str]) -> None:
    try:
        context = command.make_context(command.name, words)
    except Exception as error:
        if "does not exist" in str(error):  # a file of the reader
            return
        raise
    left = [*context._protected_args, *context.args] if hasattr(command, "resolve_command") else []
    if left:
        name, inner, rest = command.resolve_command(context, left)
        assert inner is not None, name
        _taken(inner, rest)
