"""Every JSON example in the marketer's guide is a definition that the platform accepts."""

import json
import re
from pathlib import Path
from typing import Any

from starling_api.definitions.kinds.audience import read_trait
from starling_api.definitions.kinds.kinds import LISTS, SEGMENTS
from starling_api.http.not_implemented import PLANNED
from starling_api.preview.request import requested_segment
from starling_segments import Known, parse_segment
from starling_segments.parse.conditions import LEAF_READERS
from tests.unit.api.memory import AUTHOR, World

ROOT = Path(__file__).parents[3]


def blocks(path: str, kind: str) -> list[dict[str, Any]]:
    text = (ROOT / path).read_text()
    found = re.findall(r'^```json(?: title="([a-z-]+)")?\n(.*?)^```', text, re.MULTILINE | re.DOTALL)
    return [json.loads(body) for tag, body in found if tag == kind]


def test_every_segment_of_the_marketers_guide_is_accepted() -> None:
    documents = blocks("docs/how-to/marketer.md", "")
    assert len(documents) >= 9
    traits = frozenset(document["key"] for document in blocks("docs/how-to/marketer.md", "computed-trait"))
    known: dict[str, frozenset[str]] = {}
    for document in documents:
        segment = parse_segment(
            document, Known(segments=known, computed_traits=traits, lists=frozenset({"fair-2026"}), accounts=True)
        )
        known[segment.key] = frozenset(segment.uses)


def test_every_preview_of_the_marketers_guide_is_accepted() -> None:
    asked = blocks("docs/how-to/marketer.md", "preview")
    assert asked
    for document in asked:
        assert requested_segment(document, Known())


def test_every_computed_trait_of_the_marketers_guide_is_accepted() -> None:
    for document in blocks("docs/how-to/marketer.md", "computed-trait"):
        assert read_trait(document, Known())["key"] == document["key"]


def test_every_planned_operation_is_documented() -> None:
    documented = (ROOT / "docs/reference/not-yet.md").read_text()
    missing = [one for one in PLANNED if f"`{one.method} {one.path.replace(':id', '')}`" not in documented]
    assert missing == []


BUY = {"event": "Buy"}
LEAVES: dict[str, dict[str, Any]] = {
    "trait": {"trait": "plan", "op": "exists"},
    "event": BUY,
    "first_time": {"first_time": BUY},
    "sequence": {"sequence": [BUY, {"event": "Pay"}]},
    "regularly": {"regularly": BUY, "every": "7d", "at_least": 3, "of": 4},
    "segment": {"segment": "trait"},
    "list": {"list": "vips"},
    "bucket": {"bucket": {"salt": "one", "from": 0, "to": 25}},
    "account": {"account": {"match": "any", "where": BUY}},
    "everyone": {"everyone": True},
    "measure": {"measure": {"ratio": {"of": BUY, "to": {"event": "Look"}}}, "op": "gte", "value": 0.5},
}


def test_no_part_of_the_language_is_still_to_come() -> None:
    assert LEAVES.keys() == LEAF_READERS.keys()
    world = World()
    world.commands.put(LISTS, AUTHOR, "vips", {}, None)
    for key, where in LEAVES.items():
        world.commands.define(SEGMENTS, AUTHOR, {"key": key, "name": key, "where": where})
    assert "## The segment language" not in (ROOT / "docs/reference/not-yet.md").read_text()
