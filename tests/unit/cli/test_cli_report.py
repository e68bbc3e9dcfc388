"""The report's page: one file, nothing loaded, everything escaped, the numbers right."""

import re
from typing import Any
from xml.etree import ElementTree as ET

from starling_cli.report.charts import curve_with_bars
from starling_cli.report.page import page
from starling_cli.report.rows import audience

HEAD = {"as_of": "2026-03-10T00:00:00.000Z", "timezone": "Europe/Berlin", "records_missing": 0, "records_unreadable": 0}


def rows() -> dict[str, list[dict[str, Any]]]:
    days = [("s", "2026-03-08", 2, 2, 0), ("s", "2026-03-09", 1, 0, 1), ("<b>&", "2026-03-09", 1, 1, 0)]
    return {
        "days": [dict(zip(("segment", "day", "size", "entries", "exits"), day, strict=True)) for day in days],
        "retention": [
            {"segment": "s", "day": "2026-03-01", "days_later": 7, "entered": 3, "still": 1},
            {"segment": "s", "day": "2026-02-01", "days_later": 7, "entered": 1, "still": 1},
            {"segment": "s", "day": "2026-02-01", "days_later": 30, "entered": 1, "still": 0},
        ],
        "overlap": [
            {"segment": "s", "other_key": "s", "users": 4},
            {"segment": "s", "other_key": "<b>&", "users": 1},
            {"segment": "<b>&", "other_key": "<b>&", "users": 1},
            {"segment": "<b>&", "other_key": "s", "users": 1},
        ],
    }


def test_days_of_entry_are_added_up() -> None:
    found = audience(HEAD, rows())
    assert found.days_later == [7, 30]
    assert found.retention == {("s", 7): (4, 2), ("s", 30): (1, 0)}
    assert found.cohorts["s", "2026-03", 7] == (3, 1)


def test_the_page_loads_nothing_and_escapes_what_came_from_outside() -> None:
    text = page(audience(HEAD, rows()))
    assert not re.search(r"(src|href|url\(|@import|http)", text)
    assert "<b>" not in text
    assert "&lt;b&gt;&amp;" in text
    body = text[text.index("<body>") : text.index("</html>")]
    ET.fromstring(body)  # noqa: S314 - our own text: every element is closed


def test_the_page_contains_the_shares() -> None:
    text = page(audience(HEAD, rows()))
    assert "50.0%" in text  # of four who entered two are there a week later
    assert "1 (25%)" in text  # of the four in `s`
    assert "no longer retained" not in text
    assert "12 older changes are no longer retained" in page(audience(HEAD | {"records_missing": 12}, rows()))


def test_a_chart_of_one_day_and_one_of_many() -> None:
    for count in (1, 400):
        chart = curve_with_bars(["2026-03-08"] * count, [5] * count, [1] * count, [0] * count)
        points = ET.fromstring(chart).find("polyline")  # noqa: S314 - as above
        assert points is not None
        assert len(points.attrib["points"].split()) == count


def test_an_empty_report_is_a_page_too() -> None:
    assert "<h1>Audiences</h1>" in page(audience(HEAD, {"days": [], "retention": [], "overlap": []}))
