"""Refuses retired words in code, comments, texts and documentation: `python -m tests.architecture.vocabulary`.

Each word has a replacement that the field uses. A line that needs a retired word says why, at its end:
`# vocabulary: <word>: <reason>` in code, `<!-- vocabulary: <word>: <reason> -->` in Markdown.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
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
    "on trial": "in a preview", "blind spots": "limitations",
}  # fmt: skip
"""Word or phrase in lower case -> the words to use."""

CHECKED: Final = (
    "CHANGELOG.md", "CONTRIBUTING.md", "README.md", "apps/", "benchmarks/backfill.py", "benchmarks/bench.py",
    "benchmarks/counter.py", "benchmarks/ingest.py", "benchmarks/kinds.py", "benchmarks/latency_under_load.py",
    "benchmarks/lateness.py", "benchmarks/list_upload.py", "benchmarks/live.py", "benchmarks/peers/",
    "benchmarks/preview_load.py", "benchmarks/scale.py", "benchmarks/segmenter.py", "benchmarks/segmenting.py",
    "benchmarks/segments_fold.py", "benchmarks/segments_mix.py", "benchmarks/spark_lake.py", "benchmarks/spark_profiles.py",
    "benchmarks/stages.py", "benchmarks/state.py", "benchmarks/stream.py", "docs/", "helm/", "libs/common/", "libs/items/",
    "libs/rules/", "libs/segments/", "libs/stream/", "schemas/avro/tables.cql", "schemas/avro/telemetry.yaml",
    "schemas/avro/topics.yaml", "services/api/README.md", "services/api/starling_api/definitions/",
    "services/api/starling_api/feed/", "services/api/starling_api/http/", "services/api/starling_api/lists/",
    "services/api/starling_api/ports.py", "services/api/starling_api/reports/", "services/api/starling_api/users/",
    "services/delivery/", "services/ingest/", "services/normalizer/", "services/projector/", "services/segmenter/", "spark/",
    "tests/conftest.py", "tests/contract/api/", "tests/contract/delivery/", "tests/contract/ingest/", "tests/contract/schemas/",
    "tests/contract/stream/", "tests/faults/", "tests/faults_spark/", "tests/helm/", "tests/integration/common/",
    "tests/integration/delivery/", "tests/integration/ingest/", "tests/integration/local/", "tests/integration/normalizer/",
    "tests/integration/projector/", "tests/integration/segmenter/", "tests/integration/stream/", "tests/property/common/",
    "tests/property/normalizer/", "tests/property/segmenter/", "tests/property/segments/", "tests/spark/", "tests/system/",
    "tests/unit/common/", "tests/unit/delivery/", "tests/unit/demo/", "tests/unit/docs/", "tests/unit/ingest/",
    "tests/unit/local/", "tests/unit/normalizer/", "tests/unit/projector/", "tests/unit/rules/", "tests/unit/segmenter/",
    "tests/unit/segments/", "tests/unit/spark/", "tests/unit/stream/", "tools/",
)  # fmt: skip
"""Paths, in Git's notation, below which the check holds. A package is added when its words have been replaced."""

_SUFFIXES: Final = frozenset({".py", ".md", ".yaml", ".yml", ".toml", ".avsc", ".cql", ".proto", ".sh"})
_ALLOWED: Final = re.compile(r"vocabulary: ([a-z ]+): \S")
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_PHRASE: Final = re.compile(r"\b(?:" + "|".join(sorted(map(re.escape, RETIRED), key=len, reverse=True)) + r")\b")


class Violation(NamedTuple):
    """A retired word; `line` counts from 1."""

    path: str
    line: int
    word: str

    def __str__(self) -> str:
        """As a compiler reports: place, word and cure."""
        return f"{self.path}:{self.line}: {self.word!r} is retired: write {RETIRED[self.word]}"


def violations(path: str, text: str) -> Iterator[Violation]:
    """The retired words of one file that no reason on their line allows."""
    for number, line in enumerate(text.splitlines(), start=1):
        words = _CAMEL.sub(" ", line).replace("_", " ").lower()
        found = set(_PHRASE.findall(words))
        if found:
            allowed = set(_ALLOWED.findall(line))
            for word in sorted(found - allowed):
                yield Violation(path, number, word)


def checked_files(root: Path = ROOT) -> Iterator[str]:
    """The tracked files below `CHECKED`, relative to the repository."""
    listed = subprocess.run(["git", "ls-files", "-z", *CHECKED], cwd=root, check=True, capture_output=True, text=True).stdout
    own = Path(__file__).relative_to(ROOT).as_posix()
    yield from (path for path in listed.split("\0") if Path(path).suffix in _SUFFIXES and path != own)


def main() -> int:
    """Exit code 1: at least one violation, each on a line of its own."""
    found = [violation for path in checked_files() for violation in violations(path, (ROOT / path).read_text())]
    sys.stdout.writelines(f"{violation}\n" for violation in found)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
