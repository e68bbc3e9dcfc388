"""The page on security names tests that exist."""

import re

from tests.conftest import ROOT

PAGE = ROOT / "docs" / "explanation" / "security.md"


def test_every_threat_names_a_test_that_exists() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ") and not line.startswith("| threat")]
    assert rows
    for row in rows:
        named = re.search(r"`(tests/\S+?\.py)(?:::(test_\w+))?`", row)
        assert named is not None, row
        assert f"def {named[2] or 'test_'}" in (ROOT / named[1]).read_text(), row
