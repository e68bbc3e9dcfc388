"""Which computed traits are in force, and by what name their state goes."""

import json
from typing import Any

import pytest

from starling_spark.profiles.definitions import Definition, Definitions, compile_definitions, fingerprint
from starling_spark.profiles.matching import BadEvent, EventView, Matcher
from starling_spark.profiles.positions import end_offsets
from tests.unit.spark.keeping import defined, record, traits


def changed(version: int, document: dict[str, Any], action: str = "DEFINED") -> dict[str, Any]:
    return {"workspace": "w", "key": "n", "version": version, "action": action, "document": json.dumps(document)}


A, B = {"key": "n", "name": "N", "event": "A"}, {"key": "n", "event": "B"}


def in_force(*records: dict[str, Any]) -> tuple[Definition, ...]:
    definitions = Definitions()
    for one in records:
        definitions.apply(one)
    return definitions.in_force()


def test_the_newest_version_is_in_force_and_older_ones_are_former() -> None:
    revised = in_force(changed(1, A), changed(2, B, "REVISED"), changed(1, A))
    assert revised == (Definition("w", "n", 2, json.dumps(B), (json.dumps(A),)),)
    (trait,) = compile_definitions(revised)[0]
    assert trait.measure is not None
    assert (trait.measure.event.name, [measure.event.name for measure in trait.former]) == ("B", ["A"])


@pytest.mark.parametrize("version", [1, 2])
def test_an_archived_trait_has_only_former_versions(version: int) -> None:
    assert in_force(changed(1, A), changed(version, A, "ARCHIVED")) == (Definition("w", "n", version, None, (json.dumps(A),)),)


def test_a_definition_that_cannot_be_computed_is_named_and_keeps_its_place() -> None:
    broken = Definition("w", "bad", 1, json.dumps({"event": "A", "measure": {"avg": "x"}}), ())
    compiled, problems = compile_definitions([broken, defined("good", {"event": "A"})])
    assert [trait.measure is None for trait in compiled] == [True, False]
    assert len(problems) == 1
    assert "w/bad" in problems[0]


def test_every_difference_of_meaning_gives_another_name() -> None:
    a, b = defined("n", A), defined("n", B)
    names = [fingerprint([a]), fingerprint([b]), fingerprint([a, b]), fingerprint([a], 2), fingerprint([defined("n", B, A)])]
    assert len(set(names)) == len(names)
    assert fingerprint([a], 2) == fingerprint([defined("n", A)], 2)


def test_events_meet_traits_by_name_prefix_and_workspace() -> None:
    matcher = Matcher(
        traits(
            defined("exact", {"event": "Order Completed"}),
            defined("prefix", {"event": "Order *"}),
            defined("all", {"event": "*"}),
            defined("other", {"event": "*"}, workspace="v"),
        )
    )
    assert [index for index, _ in matcher.match("w", EventView(record("Order Completed", 1, {})))] == [0, 1, 2]
    assert [index for index, _ in matcher.match("w", EventView(record("Order", 1, {})))] == [2]
    assert [index for index, _ in matcher.match("v", EventView(record("Order", 1, {})))] == [3]


@pytest.mark.parametrize("text", ["{", "[]", "null", '"x"', '{"a": NaN}'])
def test_properties_that_are_no_json_object_are_a_bad_event(text: str) -> None:
    matcher = Matcher(traits(defined("s", {"event": "A", "measure": {"sum": "x"}})))
    with pytest.raises(BadEvent, match="properties is no JSON object"):
        matcher.match("w", EventView({**record("A", 1, {}), "properties": text}))


def test_end_offsets_are_those_of_kafka_only() -> None:
    sources = [{"endOffset": {"t": {"0": 4, "1": 0}, "u": {"0": 7}}}, {"endOffset": 12}, {"endOffset": None}]
    assert end_offsets(json.dumps({"sources": sources})) == {("t", 0): 4, ("t", 1): 0, ("u", 0): 7}
