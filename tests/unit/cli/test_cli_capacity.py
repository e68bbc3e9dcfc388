"""The capacity model: the measured case, its monotonicity, and bad input."""

import dataclasses
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starling_cli.capacity.cpu import change_share, idle_micros, interpolated
from starling_cli.capacity.document import formulas, plan_document, size
from starling_cli.capacity.inputs import BOUNDS, Inputs, parse_retention
from starling_cli.capacity.plan import Plan, partitions_for, plan, workers_for
from starling_cli.capacity.rates import load_rates
from starling_common.kafka.topics import load_catalogue
from starling_local.errors import NotPossible

RATES = load_rates()
CATALOGUE = load_catalogue()


def planned(**given_inputs: Any) -> Plan:
    return plan(Inputs(**{"rps": 10_000, "users": 1e6, "segments": 100, **given_inputs}), RATES, CATALOGUE)


def as_measured(**other: Any) -> Plan:
    """The load of the measurement on the machine of the measurement: one copy, no headroom."""
    load = {"rps": RATES["platform/events_per_second"], "users": 25_000, "segments": 20, "replication": 1, "headroom": 0}
    return planned(**{**load, **other})


INPUTS = st.fixed_dictionaries(
    {
        "rps": st.floats(1, 60_000),
        "users": st.floats(1, 1e9),
        "segments": st.integers(1, 2_000),
        "changes": st.one_of(st.none(), st.floats(0, 5)),
        "memberships": st.one_of(st.none(), st.floats(0, 100)),
        "traits": st.integers(0, 300),
        "mix": st.sampled_from(["crowded", "every-kind"]),
        "items_per_request": st.one_of(st.none(), st.floats(1, 1_000)),
        "replication": st.integers(1, 5),
        "headroom": st.floats(0, 0.5),
        "replica_cores": st.floats(0.5, 1),
    }
)


def test_the_measured_load_has_the_measured_cost_of_an_event() -> None:
    made = as_measured()
    assert made.cpu_micros == pytest.approx(RATES["platform/cpu_micros_an_event"], abs=0.1)
    assert made.idle_micros == pytest.approx(RATES["platform/idle_micros_an_event"], abs=0.1)
    assert made.cores * 1e6 / made.inputs.rps == pytest.approx(RATES["platform/cpu_micros_an_event"], abs=0.1)
    assert {part.name: part.cpu.micros for part in made.parts} == pytest.approx(RATES.group("platform/cpu_micros"))
    assert all(part.cpu.is_measured for part in made.parts)


def test_a_hundred_thousand_events_need_the_cores_of_the_result() -> None:
    assert as_measured(rps=100_000).cores == pytest.approx(RATES["platform/cores_for_100000_events_a_second"], abs=0.05)


def test_an_idle_installation_needs_the_idle_cost_and_no_more() -> None:
    idle_cores = RATES["platform/idle_micros_an_event"] * RATES["platform/events_per_second"] / 1e6
    assert as_measured(rps=1).cores == pytest.approx(idle_cores, rel=0.01)


@given(INPUTS, st.floats(1, 3))
def test_more_events_never_need_less(values: dict[str, Any], factor: float) -> None:
    less, more = planned(**values), planned(**{**values, "rps": values["rps"] * factor})
    assert more.cores >= less.cores * (1 - 1e-9)
    assert more.disk_bytes >= less.disk_bytes * (1 - 1e-9)
    assert more.partitions >= less.partitions
    assert more.brokers.count >= less.brokers.count
    assert more.cassandra_nodes.count >= less.cassandra_nodes.count
    for one, other in zip(less.parts, more.parts, strict=True):
        assert other.cores >= one.cores * (1 - 1e-9)
    for one_flow, other_flow in zip(less.flows, more.flows, strict=True):
        assert other_flow.bytes_per_second >= one_flow.bytes_per_second * (1 - 1e-9)


@given(INPUTS, st.sampled_from(["users", "segments", "changes", "replication", "traits"]))
def test_more_of_anything_never_needs_less(values: dict[str, Any], name: str) -> None:
    base = {**values, "changes": values["changes"] or 0.0}
    less, more = planned(**base), planned(**{**base, name: base[name] + 1})
    assert more.cores >= less.cores * (1 - 1e-9)
    assert more.disk_bytes >= less.disk_bytes * (1 - 1e-9)
    assert more.brokers.count >= less.brokers.count
    assert more.cassandra_nodes.count >= less.cassandra_nodes.count


@given(INPUTS)
def test_no_worker_gets_more_than_it_has_cores_for(values: dict[str, Any]) -> None:
    made = planned(**values)
    assert made.partitions >= 64
    assert made.partitions.bit_count() == 1
    for part in made.parts:
        if part.name in {"normalizer", "segmenter", "projector", "delivery"}:
            most = math.ceil(made.partitions / part.replicas)
            assert most * part.cores / made.partitions <= values["replica_cores"] * (1 + 1e-9)


@pytest.mark.parametrize(("cores", "partitions"), [(0.0, 64), (16.0, 64), (16.1, 128), (64.0, 256), (64.1, 512)])
def test_partitions_are_the_next_power_of_two(cores: float, partitions: int) -> None:
    assert partitions_for(cores, 1.0) == partitions


@pytest.mark.parametrize(("cores", "workers"), [(0.0, 2), (1.0, 2), (15.9, 16), (10.0, 11), (11.0, 13)])
def test_an_uneven_division_needs_more_workers(cores: float, workers: int) -> None:
    assert workers_for(cores, 64, 1.0) == workers


def test_a_topic_takes_rate_size_retention_and_copies() -> None:
    made = planned(rps=1_000, replication=3, headroom=0.5, retention_days={"events.behaviour": 10})
    [topic] = [one for one in made.stored if one.name == "events.behaviour"]
    assert topic.disk_bytes == pytest.approx(1_000 * RATES["platform/topics/events.behaviour/bytes"] * 10 * 86_400 * 3 / 0.5)


def test_the_average_counts_for_the_disk_and_the_peak_for_cores_and_network() -> None:
    peak, both = planned(rps=10_000), planned(rps=10_000, average_rps=1_000)
    assert both.cores == peak.cores
    assert [flow.bytes_per_second for flow in both.flows] == [flow.bytes_per_second for flow in peak.flows]
    assert both.disk_bytes < peak.disk_bytes / 5


def test_every_measured_topic_and_part_is_in_the_plan() -> None:
    made = planned()
    measured = {name.rpartition("/")[0] for name, value in RATES.group("platform/topics").items() if value >= 1}
    internal = {name for name in measured if name.startswith("__")}
    stored = {one.name for one in made.stored if one.store == "Kafka"}
    assert {name for name in measured - internal if RATES[f"platform/topics/{name}/bytes"]} == stored
    assert set(RATES.group("platform/cpu_micros")) == {part.name for part in made.parts}


def test_computed_traits_add_their_job_and_its_reading() -> None:
    without, with_traits = planned(), planned(traits=50)
    [job] = [part for part in with_traits.parts if part.name == "spark profiles"]
    assert job.cpu.micros == RATES["traits/definitions/50"]
    assert job.cpu.is_measured
    assert with_traits.cores == pytest.approx(without.cores + job.cores)
    [before], [after] = ([flow for flow in one.flows if flow.name == "Kafka → services"] for one in (without, with_traits))
    assert after.bytes_per_second - before.bytes_per_second == 10_000 * RATES["platform/topics/events.behaviour/bytes"]


def test_the_segmenter_grows_along_the_measured_curve() -> None:
    curve = {name: RATES[f"curve/crowded/{name}"] for name in ("100", "1000")}
    few, many = ({part.name: part.cpu.micros for part in planned(segments=count).parts} for count in (100, 1_000))
    assert many.pop("segmenter") - few.pop("segmenter") == pytest.approx(curve["1000"] - curve["100"])
    assert few == many


def test_single_items_cost_a_request_each() -> None:
    [batched], [single] = (
        [part.cpu.micros for part in planned(items_per_request=items).parts if part.name == "ingest"] for items in (100, 1)
    )
    assert 35 < single - batched < 45


def test_fewer_changes_cost_less_in_proportion_to_their_records() -> None:
    none, usual = as_measured(changes=0), as_measured()
    costs = {part.name: part.cpu.micros for part in none.parts}
    assert costs["delivery"] == pytest.approx(idle_micros("delivery", RATES))
    for part in ("segmenter", "projector", "kafka", "cassandra"):
        share, idle = change_share(part, RATES), idle_micros(part, RATES)
        assert 0.3 < share < 0.8
        assert costs[part] == pytest.approx(idle + (RATES[f"platform/cpu_micros/{part}"] - idle) * (1 - share))
    assert {name for name in costs if costs[name] == pytest.approx(RATES[f"platform/cpu_micros/{name}"])} == {
        "ingest", "normalizer", "api", "registry",
    }  # fmt: skip
    assert none.cores < usual.cores


def test_what_is_assumed_depends_on_the_inputs() -> None:
    measured = {one.what for one in as_measured(average_rps=100, memberships=3).assumptions}
    other = {one.what for one in planned(segments=5_000, changes=3).assumptions}
    assert "cost of a membership change" not in measured
    assert "a further copy in Kafka and Cassandra" not in measured
    assert "events/s over days" not in measured
    assert {"cost of a membership change", "a further copy in Kafka and Cassandra", "more than 1,000 segments"} <= other
    assert [one for one in planned().assumptions if not (one.what and one.value and one.why)] == []


def test_every_figure_has_a_formula() -> None:
    made = planned(traits=5)
    named = dict(formulas(made))
    assert {f"cores of {part.name}" for part in made.parts} <= named.keys()
    assert {f"disk of {one.store} {one.name}" for one in made.stored} <= named.keys()
    assert {"cores", "partitions", "brokers", "Cassandra nodes"} <= named.keys()
    assert "platform.json/20-segments-1-switches/cpu_micros/segmenter" in named["cores of segmenter"]
    assert plan_document(made)["formulas"] == named


def test_the_formula_of_the_cores_gives_the_cores() -> None:
    for rps in (100, 50_000):
        for part in planned(rps=rps, segments=300, changes=0.5, items_per_request=4, traits=30).parts:
            text = part.formula
            for words in (" events/s", " µs", "idle ", "marginal ", " copies", " changes", " items", " a request", ","):
                text = text.replace(words, "")
            for words in (" with 300 segments", " with 20", " with 30 computed traits"):
                text = text.replace(words, "")
            assert eval(text) / 1e6 == pytest.approx(part.cores, rel=0.01)  # noqa: S307 - a formula of our own


def test_the_curve_is_a_line_between_points_and_beyond_the_last() -> None:
    points = [(1.0, 10.0), (11.0, 20.0), (21.0, 40.0)]
    assert [interpolated(points, x) for x in (1, 6, 11, 16, 31)] == [10, 15, 20, 30, 60]


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (1_500, "1.50 kB"), (15e9, "15.0 GB"), (5.68e15, "5.68 PB")])
def test_sizes_have_three_digits(count: float, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize("name", sorted(BOUNDS))
@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_an_input_outside_its_bounds_is_refused_by_its_option(name: str, value: float) -> None:
    with pytest.raises(NotPossible, match=f"{BOUNDS[name].option} is .*: give a number from"):
        planned(**{name: value})


def test_every_number_of_the_inputs_has_bounds() -> None:
    fields = {field.name for field in dataclasses.fields(Inputs)}
    assert fields - BOUNDS.keys() == {"mix", "retention_days"}


def test_an_average_above_the_peak_is_refused() -> None:
    with pytest.raises(NotPossible, match=r"--average-rps 20,000 is above --rps 10,000: give the peak to --rps"):
        planned(average_rps=20_000)


def test_more_cores_than_a_worker_uses_are_refused() -> None:
    with pytest.raises(NotPossible, match=r"--replica-cores is 4: one worker process uses at most 1\.06 cores"):
        planned(replica_cores=4)


def test_more_partitions_than_a_topic_has_are_refused() -> None:
    with pytest.raises(NotPossible, match="plan several installations"):
        planned(rps=1e8)


def test_retention_is_given_by_topic_or_for_all_events() -> None:
    assert parse_retention(["ingest.track=2", "events=90"], CATALOGUE) == {
        "ingest.track": 2, "events.behaviour": 90, "events.profile": 90, "events.delivery": 90,
    }  # fmt: skip


@pytest.mark.parametrize("text", ["x=3", "events.behaviour", "segmenter-state-changelog=3", "segments.definitions=3", "=3"])
def test_retention_of_another_topic_is_refused(text: str) -> None:
    with pytest.raises(NotPossible, match="write TOPIC=DAYS with a topic whose records expire"):
        parse_retention([text], CATALOGUE)


@pytest.mark.parametrize("days", ["", "0", "-1", "soon", "nan", "inf"])
def test_retention_is_a_number_of_days(days: str) -> None:
    with pytest.raises(NotPossible, match="give a number of days above 0"):
        parse_retention([f"events={days}"], CATALOGUE)
