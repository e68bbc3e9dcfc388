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


def test_every_threat_names_a_test_that_exists() -> None:
    rows = list(threats())
    assert len(rows) > 20
    for row in rows:
        named = re.search(r"`(tests/\S+?\.py)(?:::(test_\w+))?`", row)
        assert named is not None, row
        assert f"def {named[2] or 'test_'}" in (ROOT / named[1]).read_text(), row
