"""The page on security names tests that exist."""

import re
from collections.abc import Iterator

from tests.conftest import ROOT

PAGE = ROOT / "docs" / "explanation" / "security.md"


def threats() -> Iterator[str]:
    """Yield the rows of the tables of threats, but not those of results."""
    lines = PAGE.read_text().splitlines()
    for table in (number for number, line in enumerate(lines) if line == "| threat | what stops it | test |"):
        for row in lines[table + 2 :]:
            if not row.startswith("| "):
                break
            yield row


def test_every_threat_names_tests_that_exist() -> None:
    rows = list(threats())
    assert len(rows) > 45
    for row in rows:
        named = re.findall(r"`(tests/\S+?\.py)::(test_\w+)`", row.rsplit(" | ", 1)[1])
        assert named, row
        for path, name in named:
            assert f"def {name}(" in (ROOT / path).read_text(), row


def test_every_door_has_its_threats() -> None:
    doors = {
        section.partition("\n")[0].partition(":")[0] for section in PAGE.read_text().split("\n## ")[1:] if "| threat |" in section
    }
    assert doors == {
        "Ingest",
        "Segment API",
        "Webhooks",
        "Records",
        "Processes",
        "Connections",
        "Command line",
        "All doors at once",
    }
