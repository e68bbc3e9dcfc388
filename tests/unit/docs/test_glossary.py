"""The glossary stays short, and each term has one meaning."""

import re
from pathlib import Path

PAGE = (Path(__file__).parents[3] / "docs/reference/glossary.md").read_text()
ENTRIES = re.findall(r"^\| (?!term\b)([^|]+) \| ([^|]+) \| ([^|]+) \|$", PAGE, re.MULTILINE)


def test_the_glossary_has_at_most_forty_terms_each_once_with_an_equivalent_or_a_dash() -> None:
    terms = [term for term, _, _ in ENTRIES]
    assert 20 < len(terms) == len(set(terms)) <= 40
    assert [term for term, _, equivalent in ENTRIES if not re.match(r"\u2013$|(KS|Flink|Segment)[:,]", equivalent)] == []
    assert len(terms) == sum(line.startswith("| ") for line in PAGE.splitlines()) - PAGE.count("| term |")
