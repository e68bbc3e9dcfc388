"""Every JSON example in the marketer's guide is a definition that the platform accepts."""

import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from starling_api.routes.later import LATER
from starling_segments import DefinitionRefused, Known, parse_condition, parse_measure, parse_segment
from starling_segments.conditions import LEAF_READERS

ROOT = Path(__file__).parents[3]


def blocks(path: str, kind: str) -> list[dict[str, Any]]:
    text = (ROOT / path).read_text()
    found = re.findall(r"^```json *([a-z-]*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [json.loads(body) for tag, body in found if tag == kind]


def test_every_segment_of_the_marketers_guide_is_accepted() -> None:
    documents = blocks("docs/guides/marketer.md", "")
    assert len(documents) >= 9
    traits = frozenset(document["key"] for document in blocks("docs/guides/marketer.md", "computed-trait"))
    known: dict[str, frozenset[str]] = {}
    for document in documents:
        segment = parse_segment(document, Known(segments=known, computed_traits=traits, taken_keys=frozenset()))
        known[segment.key] = frozenset(segment.uses)


def test_every_computed_trait_of_the_marketers_guide_is_accepted() -> None:
    for document in blocks("docs/guides/marketer.md", "computed-trait"):
        assert parse_measure({name: document[name] for name in ("event", "measure")})


def test_every_call_that_answers_501_is_told() -> None:
    told = (ROOT / "docs/not-yet.md").read_text()
    missing = [one for one in LATER if f"`{one.method} {one.path.replace(':path', '')}`" not in told]
    assert missing == []


NOT_YET = {"list": {"list": "vips"}, "account": {"account": {"match": "any", "where": {"everyone": True}}}}


def test_every_part_of_the_language_that_is_refused_as_not_yet_is_told() -> None:
    told = (ROOT / "docs/not-yet.md").read_text().partition("## The segment language")[2].partition("\n## ")[0]
    refused = set()
    for name in LEAF_READERS:
        with suppress(DefinitionRefused):
            parse_condition(NOT_YET.get(name, {"everyone": True}), "UTC", Known())
            continue
        refused.add(name)
    assert refused == NOT_YET.keys()
    assert set(re.findall(r"^\| `(\w+)` \|", told, re.MULTILINE)) == refused
