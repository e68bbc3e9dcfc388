"""Which computed traits are in force, and by what name their state goes."""

import json
from typing import Any

import pytest

from starling_segments import Measure
from starling_segments.language.tree import Calendar
from starling_spark.jobs.profiles.definitions.in_force import Definition, Definitions, computable, fingerprint, read_definitions
from starling_spark.jobs.profiles.definitions.plans import compile_traits
from starling_spark.jobs.profiles.fold.matches import BadEvent, Event
from starling_spark.kafka.groups import end_offsets
from tests.unit.spark.keeping import defined, event, traits


def changed(version: int, document: dict[str, Any], action: str = "DEFINED") -> dict[str, Any]:
    return {"workspace": "w", "key": "n", "version": version, "action": action, "document": json.dumps(document)}


A, B = {"key": "n", "name": "N", "event": "A"}, {"key": "n", "event": "B"}


def in_force(*records: dict[str, Any]) -> tuple[Definition, ...]:
    definitions = Definitions()
    for one in records:
        definitions = definitions.after(one)
    return definitions.in_force()


def test_the_newest_version_is_in_force_and_older_ones_are_former() -> None:
    revised = in_force(changed(1, A), changed(2, B, "REVISED"), changed(1, A))
    assert revised == (Definition("w", "n", 2, json.dumps(B), (json.dumps(A),)),)
    (trait,) = read_definitions(revised)[0]
    assert isinstance(trait.measure, Measure)
    assert (trait.measure.event.name, [selector.name for selector in trait.former]) == ("B", ["A"])


def test_of_a_former_ratio_both_sides_are_remembered() -> None:
    ratio = {"measure": {"ratio": {"of": {"event": "Refund"}, "to": {"event": "Order"}}}}
    (trait,) = traits(defined("n", A, ratio))
    assert [selector.name for selector in trait.former] == ["Refund", "Order"]


def test_a_definition_is_read_in_its_own_timezone() -> None:
    visits = {"event": "A", "measure": {"days": True}, "calendar": "this_week", "timezone": "Asia/Tokyo"}
    (trait,) = traits(defined("n", visits))
    assert isinstance(trait.measure, Measure)
    assert (trait.measure.zone, trait.measure.window) == ("Asia/Tokyo", Calendar("week", 0, "Asia/Tokyo"))


def test_a_trait_in_sql_is_that_of_another_job() -> None:
    sql = {"key": "n", "sql": "SELECT user_id, 1 AS value FROM profiles", "schedule": "0 * * * *"}
    assert in_force(changed(1, sql), changed(1, sql, "ARCHIVED")) == ()
    definitions = Definitions()
    assert definitions.after(changed(1, sql)) is definitions  # so that the running query stays as it is
    assert len(in_force({**changed(1, A), "document": "no JSON"})) == 1


@pytest.mark.parametrize("version", [1, 2])
def test_an_archived_trait_has_only_former_versions(version: int) -> None:
    assert in_force(changed(1, A), changed(version, A, "ARCHIVED")) == (Definition("w", "n", version, None, (json.dumps(A),)),)


def test_a_definition_that_cannot_be_computed_is_named_and_keeps_its_place() -> None:
    broken = Definition("w", "bad", 1, json.dumps({"event": "A", "measure": {"median": "x"}}), ())
    compiled, problems = read_definitions([broken, defined("good", {"event": "A"})])
    assert [trait.measure is None for trait in compiled] == [True, False]
    assert len(problems) == 1
    assert "w/bad" in problems[0]


def test_a_definition_without_a_value_and_without_a_valid_earlier_version_is_not_computable() -> None:
    wrong = {"event": "A", "measure": {"median": "x"}}
    never = Definition("w", "never", 1, json.dumps(wrong), ())
    revised = defined("revised", A, wrong)
    archived = Definition("w", "archived", 2, None, (json.dumps(wrong),))
    found, problems = computable([never, defined("good", A), revised, archived])
    assert [definition.key for definition in found] == ["good", "revised"]
    assert [problem.split(":")[0] for problem in problems] == ["w/never", "w/revised", "w/archived"]


def test_every_difference_of_meaning_gives_another_name() -> None:
    a, b = defined("n", A), defined("n", B)
    names = [fingerprint([a]), fingerprint([b]), fingerprint([a, b]), fingerprint([a], 2), fingerprint([defined("n", B, A)])]
    assert len(set(names)) == len(names)
    assert fingerprint([a], 2) == fingerprint([defined("n", A)], 2)


def test_events_meet_traits_by_name_prefix_and_workspace() -> None:
    definitions = [
        defined("exact", {"event": "Order Completed"}),
        defined("prefix", {"event": "Order *"}),
        defined("all", {"event": "*"}),
    ]
    plans = compile_traits(traits(*definitions, defined("other", {"event": "*"}, workspace="v")))

    def met(workspace: str, name: str) -> list[str]:
        plan = plans[workspace]
        numbers = [number for number, _ in plan.measures.matches(event(name, 1, {}))]
        return [plan.traits[index].key for number in numbers for index in plan.concerned[number]]

    assert met("w", "Order Completed") == ["exact", "prefix", "all"]
    assert met("w", "Order") == ["all"]
    assert met("v", "Order") == ["other"]
    assert plans["w"].measures.touches("anything")


def test_traits_that_keep_the_same_data_share_it() -> None:
    sums = {"event": "A", "measure": {"sum": "x"}, "within": "7d"}
    ratio = {"measure": {"ratio": {"of": sums, "to": {"event": "A", "within": "7d"}}}}
    (plan,) = compile_traits(traits(defined("a", sums), defined("b", sums), defined("c", ratio))).values()
    assert len(plan.measures.leaves) == 2
    assert plan.concerned == ((0, 1, 2), (2,))


@pytest.mark.parametrize("text", ["{", "[]", "null", '"x"', '{"a": NaN}'])
def test_properties_that_are_no_json_object_are_a_bad_event(text: str) -> None:
    (plan,) = compile_traits(traits(defined("s", {"event": "A", "measure": {"sum": "x"}}))).values()
    with pytest.raises(BadEvent, match="properties is no JSON object"):
        plan.measures.matches(Event("A", 1, (text,)))


def test_end_offsets_are_those_of_kafka_only() -> None:
    sources = [{"endOffset": {"t": {"0": 4, "1": 0}, "u": {"0": 7}}}, {"endOffset": 12}, {"endOffset": None}]
    assert end_offsets(json.dumps({"sources": sources})) == {("t", 0): 4, ("t", 1): 0, ("u", 0): 7}
