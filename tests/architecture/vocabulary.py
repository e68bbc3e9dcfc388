"""Refuses retired words in code, comments, texts and documentation: `python -m tests.architecture.vocabulary`.

Each word has a replacement that the field uses. A line that needs a retired word says why, at its end:
`# vocabulary: <word>: <reason>` in code, `<!-- vocabulary: <word>: <reason> -->` in Markdown.
"""

import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parent.parent.parent

RETIRED: Final = {
    "tell": "publish, emit, report or state", "tells": "publishes, emits, reports or states", "told": "published or reported",
    "telling": "publishing, emitting or reporting", "tidings": "notification",
    "say": "state, report or return", "says": "states, reports or returns", "said": "stated, reported or returned",
    "hear": "receive", "hears": "receives", "heard": "received", "speak": "call or send", "speaks": "calls or sends",
    "announce": "emit", "announces": "emits", "announced": "emitted", "announcement": "membership change",
    "announcements": "membership changes",
    "beginnings": "first match", "recents": "sliding windows", "spreads": "distributions",
    "holdings": "assigned tasks", "dealt": "assigned", "hydration": "lazy restore",
    "doorway": "dependencies", "surroundings": "dependencies", "desk": "messages",
    "whoever": "the user, consumer or caller", "somebody": "a user", "nobody": "no user or no consumer",
    "everybody": "every user",
    "anew": "again", "of late": "recently", "at hand": "available", "for good": "permanently", "by itself": "automatically",
    "the one that": "the noun", "what it takes to": "the noun", "second tier": "backing store", "left behind": "orphaned",
    "on trial": "in a preview", "trials": "previews", "blind spots": "limitations",
    "look into": "read", "looked into": "read", "spoke": "called or sent", "speaking": "calling or sending",
    "for ever": "permanently or endlessly",
    "verdict": "findings or consistency check", "verdicts": "findings or consistency checks",
    "judge": "evaluate, check or compare", "judges": "evaluates, checks or compares", "judged": "evaluated, checked or compared",
    "judging": "evaluating, checking or comparing", "judgement": "evaluation, check or comparison",
}  # fmt: skip
"""Word or phrase in lower case -> the words to use."""

RETIRED_IN_PRODUCT: Final = {
    "let go": "release or drop", "lets go": "releases or drops", "standing": "positions or trait conditions",
    "survey": "sampling", "surveys": "sampling",
    "tier": "local store or backing store", "tiers": "stores", "dirty": "unflushed", "cold": "not loaded",
    "warm": "loaded", "warming": "loading", "kept up": "updated or maintained",
}  # fmt: skip
"""Words that have another meaning in a test or in a benchmark, and none in the product."""

TERMS: Final = {"services/delivery/": frozenset({"tier", "tiers"})}
"""Directory -> retired words that are terms of its subject: a retry tier is a topic of messages with the same delay."""

_PRODUCT: Final = ("apps/", "docs/", "helm/", "libs/", "schemas/", "services/", "spark/", "README.md")

EXEMPT: Final = frozenset({"tests/architecture/vocabulary.py", "tests/architecture/test_vocabulary.py"})
"""Files that name the words: the list itself, and its test with planted ones."""

_SUFFIXES: Final = frozenset(
    {".py", ".md", ".yaml", ".yml", ".toml", ".avsc", ".cql", ".proto", ".sh", ".json", ".ts", ".java", ".tpl", ".svg"}
)
_NAMES: Final = frozenset({"Makefile"})
_WRITTEN: Final = ("benchmarks/results/", "tests/unit/segments/states/", "package-lock.json")
"""Files that programs wrote."""

_ALLOWED: Final = re.compile(r"vocabulary: ([a-z ]+): \S")
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def _pattern(words: Iterable[str]) -> re.Pattern[str]:
    return re.compile(r"\b(?:" + "|".join(sorted(map(re.escape, words), key=len, reverse=True)) + r")\b")


_EVERYWHERE: Final = _pattern(RETIRED)
_IN_PRODUCT: Final = _pattern({*RETIRED, *RETIRED_IN_PRODUCT})


class Violation(NamedTuple):
    """A retired word; `line` counts from 1."""

    path: str
    line: int
    word: str

    def __str__(self) -> str:
        """As a compiler reports: place, word and cure."""
        return f"{self.path}:{self.line}: {self.word!r} is retired: write {(RETIRED | RETIRED_IN_PRODUCT)[self.word]}"


def violations(path: str, text: str) -> Iterator[Violation]:
    """The retired words of one file that no reason on their line allows."""
    pattern = _IN_PRODUCT if path.startswith(_PRODUCT) else _EVERYWHERE
    terms = {word for directory, words in TERMS.items() if path.startswith(directory) for word in words}
    for number, line in enumerate(text.splitlines(), start=1):
        words = _CAMEL.sub(" ", line).replace("_", " ").lower()
        found = set(pattern.findall(words))
        if found:
            allowed = terms.union(_ALLOWED.findall(line))
            yield from (Violation(path, number, word) for word in sorted(found - allowed))


def checked_files(root: Path = ROOT) -> Iterator[str]:
    """Yield the tracked text files, relative to the repository, except `EXEMPT`."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, check=True, capture_output=True, text=True).stdout
    for path in listed.split("\0"):
        is_text = Path(path).suffix in _SUFFIXES or Path(path).name in _NAMES
        if is_text and path not in EXEMPT and not any(part in path for part in _WRITTEN):
            yield path


def main() -> int:
    """Exit code 1: at least one violation, each on a line of its own."""
    found = [violation for path in checked_files() for violation in violations(path, (ROOT / path).read_text())]
    sys.stdout.writelines(f"{violation}\n" for violation in found)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
