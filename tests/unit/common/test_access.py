"""The rights of the services follow from the catalogue and the code."""

import re
from pathlib import Path
from typing import Any

import pytest
from grimp import build_graph

from starling_common.kafka.access.check import needs_of
from starling_common.kafka.access.rights import Operation, Principals, Resource, Right, Service, chosen, load_services, services_of
from starling_common.kafka.topics import Catalogue, Stage, load_catalogue

ROOT = Path(__file__).parents[3]


def rights(entry: dict[str, Any]) -> set[tuple[str, str, str]]:
    """Return (resource, name, operation) of one entry of the file, against a small catalogue."""
    topics = {name: load_catalogue().topics["events.profile"] for name in ("a.in", "a.out", "b.in", "a.dlq")}
    stages = [Stage("a", "group-a", ("a.in",), False), Stage("b", "group-b", ("b.in",), False)]
    [service] = services_of({"one": entry}, Catalogue(topics, stages))
    return {(right.resource.value, f"{right.name}{'*' * right.is_prefix}", right.operation.value) for right in service.rights}


def test_a_stage_reads_its_inputs_and_its_group() -> None:
    assert rights({"stages": ["a"]}) == {("topic", "a.in", "read"), ("group", "group-a", "read")}


def test_a_right_to_describe_is_left_out_where_another_one_includes_it() -> None:
    assert rights({"stages": ["a"], "writes": ["a.out"], "describes": ["a.*"], "groups": ["group-a", "other"]}) == {
        ("topic", "a.in", "read"),
        ("topic", "a.out", "write"),
        ("topic", "a.dlq", "describe"),
        ("group", "group-a", "read"),
        ("group", "other", "describe"),
    }


def test_lags_of_other_stages_need_no_record() -> None:
    assert rights({"lags": ["*"]}) == {
        ("topic", "a.in", "describe"),
        ("topic", "b.in", "describe"),
        ("group", "group-a", "describe"),
        ("group", "group-b", "describe"),
    }
    assert ("topic", "b.in", "write") in rights({"lags": ["b"], "writes": ["@inputs"]})


def test_groups_of_a_process_are_exact_or_the_start_of_several() -> None:
    assert rights({"joins": ["x-*", "y"]}) == {("group", "x-*", "read"), ("group", "y", "read")}
    assert rights({"groups": ["x-*"]}) == {("group", "x-*", "describe")}


def test_a_process_is_not_asked_about_the_start_of_several_groups() -> None:
    assert "starling-projector" in needs_of("audience").groups
    assert not any(group.startswith("starling-audience-") for group in needs_of("audience").groups)


def test_transactional_ids_are_exact_or_the_start_of_several() -> None:
    assert rights({"transactions": "x-*"}) == {("transactional id", "x-*", "write")}
    assert rights({"transactions": "x"}) == {("transactional id", "x", "write")}


def test_created_topics_are_described_and_their_settings_changed() -> None:
    assert rights({"creates": ["a.in"]}) == {("topic", "a.in", each) for each in ("create", "describe", "alter configs")}


@pytest.mark.parametrize(
    ("entry", "error"),
    [
        ({"reads": ["c.in"]}, "one: reads: c.in is no topic of topics.yaml"),
        ({"stages": ["c"]}, "one: stages: c is no stage of topics.yaml"),
        ({"raeds": ["a.in"]}, "one: unknown key raeds; the keys are"),
    ],
)
def test_an_error_names_the_entry(entry: dict[str, Any], error: str) -> None:
    with pytest.raises(ValueError, match=re.escape(error)):
        rights(entry)


@pytest.mark.parametrize(
    "pattern", ["User:starling", "starling-{service}", "User:{service}{service}", "User:{service}-{workspace}"]
)
def test_a_pattern_gives_each_service_a_name(pattern: str) -> None:
    with pytest.raises(ValueError, match="such as User:starling"):
        Principals(pattern)


def test_a_pattern_may_be_that_of_certificates() -> None:
    principals = Principals("User:CN={service},O=Example")
    assert (principals.of("api"), principals.user("api")) == ("User:CN=api,O=Example", "CN=api,O=Example")


def test_services_are_chosen_by_name() -> None:
    services = load_services(load_catalogue())
    assert [one.name for one in chosen(services, ["lake", "ingest"])] == ["lake", "ingest"]
    assert chosen(services, []) == services
    with pytest.raises(ValueError, match="there is no service lace; the services are ingest"):
        chosen(services, ["lace"])


def test_each_stage_of_the_catalogue_has_one_service_that_reads_it() -> None:
    services = load_services(load_catalogue())
    for stage in load_catalogue().stages:
        group = Right(Resource.GROUP, stage.group, False, Operation.READ, "")
        assert len([one.name for one in services if one.name != "operator" and group in one.rights]) == 1, stage.name


def test_each_topic_is_written_by_a_service() -> None:
    services = [one for one in load_services(load_catalogue()) if one.name != "operator"]
    written = {right.name for one in services for right in one.rights if right.operation is Operation.WRITE}
    from_outside = {"stream.clock", "dlq.replays", "delivery.requests", "delivery.retry", "audience.retry"}
    assert load_catalogue().topics.keys() - written == from_outside


NAMED_GROUP = re.compile(r"(?:range_consumer|consumer_config)\([\w.]+, f?\"([^\"]+)\"")


def test_each_consumer_group_that_the_code_names_is_a_right_of_a_service() -> None:
    known = {right.name for one in load_services(load_catalogue()) for right in one.rights if right.resource is Resource.GROUP}
    named: set[str] = set()
    for path in (path for place in ("libs", "services", "spark", "apps/cli") for path in (ROOT / place).rglob("*.py")):
        calls = NAMED_GROUP.findall(path.read_text())
        named |= {re.sub(r"\{[^}]*\}", "*", name) for name in calls}
    assert len(named) >= 12
    for name in named:
        assert any(re.fullmatch(re.escape(name).replace(r"\*", ".+"), group) for group in known), name


def test_each_job_of_spark_has_the_right_to_the_groups_that_its_own_and_shared_modules_name() -> None:
    graph = build_graph("starling_spark", include_external_packages=False)
    groups = {one.name: {right.name for right in one.rights if right.resource is Resource.GROUP} for one in _services()}
    named = {
        module: names
        for module in graph.modules
        if (path := (ROOT / "spark" / module.replace(".", "/")).with_suffix(".py")).exists()
        and (names := NAMED_GROUP.findall(path.read_text()))
    }
    found: dict[str, set[str]] = {}
    for package in graph.find_children("starling_spark.jobs"):
        own = {package} | graph.find_descendants(package) | graph.find_upstream_modules(package, as_package=True)
        job = package.rpartition(".")[2].replace("_", "-")
        found[job] = {name for module in own & named.keys() for name in named[module]}
    assert found["views"] == {"starling-views-unfinished", "starling-headers-again"}
    for job, needed in found.items():
        assert needed <= groups.get(job, set()), job


def _services() -> list[Service]:
    return load_services(load_catalogue())


def test_a_process_needs_its_topics_by_the_names_of_its_settings() -> None:
    needs = needs_of("projector", {"segments.progress": "other.progress", "starling-projector": "mine"})
    assert needs.topics["other.progress"] == [Operation.READ]
    assert "segments.progress" not in needs.topics
    assert "mine" in needs.groups
