"""The processor on a task in memory: what goes in, what comes out, what is kept."""

import json
from typing import Any

import msgspec
import pytest

from starling_common.headers import header
from starling_common.kafka.topics import AGGREGATES, BEHAVIOUR, OUTCOMES, PROFILE
from starling_common.settings import Clock
from starling_common.values import MAX_ID_BYTES, deterministic_id
from starling_items.dedupe import DEFAULT_WINDOW_MS
from starling_items.enrich import Product
from starling_items.profile import MAX_TRAITS_BYTES, Profile
from starling_items.work import StageDependencies
from starling_normalizer.agents import CatalogLost, Normalizer, NormalizerDependencies, normalizer_service
from starling_normalizer.testing import RECEIVED_MS, key_of, local_codecs, received
from starling_stream.testing import MemoryTask

Records = list[dict[str, Any]]
DAY_MS = 24 * 3_600_000
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Bench:
    """A normalizer on a task in memory, spoken to in records."""

    def __init__(self, clock: Clock = Clock.WALL, window_ms: int = DEFAULT_WINDOW_MS) -> None:
        self.codecs = local_codecs()
        self.counted: list[tuple[str, str]] = []
        catalog = {("default", "sku-1"): Product("shoes", 42.5, None, "Trail runner")}
        stage_dependencies = StageDependencies(clock, lambda workspace, sku: catalog.get((workspace, sku)), window_ms)
        self.problem: str | None = None
        count = self.counted.append
        world = NormalizerDependencies(
            lambda topic, outcome: count((topic, outcome)), lambda: RECEIVED_MS + 9, lambda: self.problem
        )
        normalizer = Normalizer(self.codecs, stage_dependencies, world)
        self.task: MemoryTask[Profile] = MemoryTask(normalizer_service(normalizer, clock))

    def send(self, kind: str, item: dict[str, Any] | str, **fields: Any) -> None:
        record = received(kind, item, **fields)
        topic = f"ingest.{kind}"
        self.task.feed(topic, key_of(record), self.codecs[topic].encode(record), [("traceparent", TRACEPARENT.encode())])

    def compute(self, value: str | None, as_of: int, version: int = 1, **fields: Any) -> None:
        record = {
            "received_at": RECEIVED_MS * 1000,
            "workspace": "default",
            "user_id": "ada",
            "event_id": f"e-{version}-{as_of}",
            "trait_key": "orders",
            "trait_version": version,
            "value": value,
            "as_of": as_of,
            "correlation_id": "c-9",
            **fields,
        }
        self.task.feed(AGGREGATES, b"default/ada", self.codecs[AGGREGATES].encode(record))

    def take(self, topic: str) -> Records:
        return [self.codecs[topic].decode(output.value) for output in self.task.take_outputs(topic)]

    def take_one(self, topic: str) -> dict[str, Any]:
        [record] = self.take(topic)
        return record


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_track_call_becomes_an_event_and_an_outcome(bench: Bench) -> None:
    item = {
        "event": "Order Completed",
        "timestamp": "2025-12-31T23:59:58Z",
        "properties": {"product_id": "sku-1", "revenue": 40},
        "context": {"app": {"version": "2.0.0"}},
    }
    bench.send("track", item, anonymous_id="a-1", sent_at="2025-12-31T23:59:59Z")
    event = bench.take_one(BEHAVIOUR)
    event_id = deterministic_id("default", "ada", "m-1", "track")
    properties = {"product_id": "sku-1", "revenue": 40, "category": "shoes", "price": 42.5, "name": "Trail runner"}
    assert json.loads(event.pop("properties")) == properties
    assert event == {
        "received_at": RECEIVED_MS * 1000,
        "order": RECEIVED_MS * 1000,
        "previous_order": 0,
        "workspace": "default",
        "user_id": "ada",
        "anonymous_ids": ["a-1"],
        "event_id": event_id,
        "message_id": "m-1",
        "kind": "track",
        "name": "Order Completed",
        "event_time": RECEIVED_MS - 1000,
        "raw_timestamp": "2025-12-31T23:59:58Z",
        "raw_sent_at": "2025-12-31T23:59:59Z",
        "context": '{"app":{"version":"2.0.0"}}',
        "traits": "{}",
        "products": [{"product_id": "sku-1", "category": "shoes", "price": 42.5, "brand": None, "name": "Trail runner"}],
        "correlation_id": "c-1",
    }
    assert bench.take_one(OUTCOMES) == {
        "received_at": RECEIVED_MS * 1000,
        "workspace": "default",
        "user_id": "ada",
        "message_id": "m-1",
        "outcome": "ACCEPTED",
        "event_id": event_id,
        "event_topic": BEHAVIOUR,
        "code": None,
        "message": None,
        "origin_topic": "ingest.track",
        "origin_partition": 0,
        "origin_offset": 0,
        "decided_at": RECEIVED_MS + 9,
        "correlation_id": "c-1",
    }
    assert bench.counted == [("ingest.track", "ACCEPTED")]


def test_outputs_carry_the_key_the_order_and_the_trace_of_their_source(bench: Bench) -> None:
    bench.send("track", {"event": "A"}, correlation_id="c-7")
    outputs = bench.task.take_outputs()
    assert [output.topic for output in outputs] == [BEHAVIOUR, OUTCOMES]
    for output in outputs:
        assert (output.key, output.received_at) == (b"default/ada", RECEIVED_MS * 1000)
        names = ("correlation_id", "traceparent", "produced_by")
        assert [header(output.headers, name) for name in names] == ["c-7", TRACEPARENT, "normalizer"]


@pytest.mark.parametrize(("kind", "name"), [("page", "Page Viewed"), ("screen", "Screen Viewed")])
def test_pages_and_screens_are_events(bench: Bench, kind: str, name: str) -> None:
    bench.send(kind, {"name": "Home", "category": "Start", "properties": {"url": "/"}}, user_id=None, anonymous_id="a-1")
    event = bench.take_one(BEHAVIOUR)
    assert (event["kind"], event["name"], event["user_id"], event["anonymous_ids"]) == (kind, name, "a-1", ["a-1"])
    assert json.loads(event["properties"]) == {"url": "/", "name": "Home", "category": "Start"}


def test_traits_are_kept_and_are_on_every_later_event(bench: Bench) -> None:
    bench.send("identify", {"traits": {"plan": "pro", "city": "Oslo"}, "context": {"traits": {"plan": "free", "age": 7}}})
    first = bench.take_one(PROFILE)
    assert (first["change"], sorted(first["changed"])) == ("TRAITS", ["age", "city", "plan"])
    assert json.loads(first["traits"]) == {"plan": "pro", "city": "Oslo", "age": 7}
    bench.task = bench.task.restart()
    bench.send("identify", {"traits": {"plan": None, "city": "Oslo"}}, message_id="m-2")
    assert bench.take_one(PROFILE)["changed"] == ["plan"]
    bench.send("track", {"event": "A", "context": {"traits": {"city": "Rome"}}}, message_id="m-3")
    assert json.loads(bench.take_one(BEHAVIOUR)["traits"]) == {"city": "Oslo", "age": 7}


def test_an_identify_without_traits_emits_the_profile(bench: Bench) -> None:
    bench.send("identify", {})
    assert (bench.take_one(PROFILE)["changed"], bench.take_one(OUTCOMES)["event_topic"]) == ([], PROFILE)


def test_a_group_call_sets_the_account(bench: Bench) -> None:
    bench.send("group", {"groupId": 17, "traits": {"seats": 3}})
    changed = bench.take_one(PROFILE)
    assert (changed["change"], changed["group_id"], changed["group_traits"]) == ("GROUP", "17", '{"seats":3}')
    bench.send("identify", {}, message_id="m-2")
    later = bench.take_one(PROFILE)
    assert (later["group_id"], later["group_traits"]) == ("17", "{}")


def test_an_alias_call_is_passed_on_as_a_link(bench: Bench) -> None:
    bench.send("alias", {"previousId": "a-1"})
    changed = bench.take_one(PROFILE)
    assert (changed["change"], changed["previous_id"], changed["anonymous_ids"]) == ("LINKED", "a-1", [])


def test_a_repetition_has_no_effect_and_is_reported(bench: Bench) -> None:
    bench.send("identify", {"traits": {"n": 1}})
    bench.task.take_outputs()
    before = bench.task.state(b"default/ada")
    bench.send("identify", {"traits": {"n": 2}})
    outcome = bench.take_one(OUTCOMES)
    assert (outcome["outcome"], outcome["event_id"], outcome["origin_offset"]) == ("DUPLICATE", None, 1)
    assert bench.take(PROFILE) == []
    assert bench.task.state(b"default/ada") == before


@pytest.mark.parametrize("days", [1, 7, 90])
def test_the_same_message_id_of_another_user_or_after_the_window_is_no_repeat(days: int) -> None:
    bench = Bench(window_ms=days * DAY_MS)
    bench.send("track", {"event": "A"})
    bench.send("track", {"event": "A"}, user_id="bob")
    bench.send("track", {"event": "A"}, received_at=(RECEIVED_MS + days * DAY_MS) * 1000)
    bench.send("track", {"event": "A"}, received_at=(RECEIVED_MS + days * DAY_MS + 60_000) * 1000)
    assert [outcome["outcome"] for outcome in bench.take(OUTCOMES)] == ["ACCEPTED", "ACCEPTED", "DUPLICATE", "ACCEPTED"]


def test_under_the_event_clock_the_window_is_that_of_the_events() -> None:
    bench = Bench(Clock.EVENT)
    bench.send("track", {"event": "A", "timestamp": "1997-01-01T00:00:00Z"})
    bench.send("track", {"event": "A", "timestamp": "1997-01-08T00:00:59.999Z"})
    bench.send("track", {"event": "A", "timestamp": "1997-01-08T00:01:00Z"})
    assert [outcome["outcome"] for outcome in bench.take(OUTCOMES)] == ["ACCEPTED", "DUPLICATE", "ACCEPTED"]
    assert [event["event_time"] for event in bench.take(BEHAVIOUR)] == [852_076_800_000, 852_681_660_000]


@pytest.mark.parametrize(("clock", "imported"), [(Clock.EVENT, False), (Clock.WALL, True)])
def test_history_is_taken_at_its_word(clock: Clock, imported: bool) -> None:
    bench = Bench(clock)
    item = {"event": "A", "originalTimestamp": "1997-01-01T00:00:00Z", "sentAt": "2020-01-01T00:00:00Z"}
    bench.send("track", item, imported=imported)
    assert bench.take_one(BEHAVIOUR)["event_time"] == 852_076_800_000


def test_a_refused_item_is_in_the_outcomes_and_in_the_dead_letters_and_may_be_sent_again(bench: Bench) -> None:
    bench.send("track", {"event": ""}, user_id="ada")
    outcome = bench.take_one(OUTCOMES)
    assert (outcome["outcome"], outcome["code"], outcome["user_id"]) == ("REFUSED", "missing_event", "ada")
    [refusal] = bench.task.refusals
    assert (refusal.code, refusal.message) == (outcome["code"], outcome["message"])
    assert bench.task.states() == {}
    bench.send("track", {"event": "A"})
    assert bench.take_one(OUTCOMES)["outcome"] == "ACCEPTED"
    assert bench.counted == [("ingest.track", "REFUSED"), ("ingest.track", "ACCEPTED")]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"user_id": None}, "missing_id"),
        ({"user_id": "u" * (MAX_ID_BYTES + 1)}, "id_too_long"),
        ({"anonymous_id": "a" * (MAX_ID_BYTES + 1)}, "id_too_long"),
        ({"message_id": ""}, "missing_message_id"),
        ({"kind": "merge"}, "unknown_kind"),
        ({"item": "[" * 50_000}, "too_deep"),
    ],
)
def test_a_record_that_the_edge_would_not_write_is_refused(bench: Bench, fields: dict[str, Any], code: str) -> None:
    record = {**received("track", {"event": "A"}), **fields}
    bench.task.feed("ingest.track", key_of(record), bench.codecs["ingest.track"].encode(record))
    assert bench.take_one(OUTCOMES)["code"] == code


def test_a_record_under_a_strangers_key_does_not_touch_the_stranger(bench: Bench) -> None:
    bench.task.feed("ingest.track", b"default/eve", bench.codecs["ingest.track"].encode(received("track", {"event": "A"})))
    assert bench.take_one(OUTCOMES)["code"] == "wrong_key"
    assert bench.task.states() == {}


def test_a_profile_that_grows_too_large_stays_as_it_was(bench: Bench) -> None:
    bench.send("identify", {"traits": {"a": "x" * (MAX_TRAITS_BYTES - 100)}})
    before = bench.task.states()
    bench.send("identify", {"traits": {"b": "x" * 100}}, message_id="m-2", anonymous_id="a-1")
    assert [outcome["code"] for outcome in bench.take(OUTCOMES)] == [None, "profile_too_large"]
    assert bench.task.states() == before


def test_bytes_that_are_no_record_go_to_the_dead_letters_and_the_next_record_goes_on(bench: Bench) -> None:
    bench.task.feed("ingest.track", b"default/ada", b"\x00\x00\x00\x00\x63junk")
    bench.send("track", {"event": "A"})
    assert [refusal.code for refusal in bench.task.refusals] == ["unknown_schema"]
    assert len(bench.take(BEHAVIOUR)) == len(bench.take(OUTCOMES)) == 1


@pytest.mark.parametrize("received_at", [-(2**63), -1, 2**63 - 1])
def test_a_record_received_at_no_possible_time_moves_nothing(bench: Bench, received_at: int) -> None:
    bench.send("track", {"event": "A"}, received_at=received_at)
    bench.compute("1", 10, received_at=received_at)
    assert [refusal.code for refusal in bench.task.refusals] == ["bad_received_at", "bad_received_at"]
    assert (bench.task.outputs, bench.task.states(), bench.task.stream_time_ms) == ([], {}, 0)


def test_computed_traits_change_the_profile_once(bench: Bench) -> None:
    bench.send("identify", {"traits": {"plan": "pro"}})
    bench.task.take_outputs()
    for value, as_of in [("3", 10), ("3", 10), ("3", 20), ("4", 30), ("3", 10), ("3", 20), ("4", 30), (None, 40), (None, 40)]:
        bench.compute(value, as_of)
    changes = bench.take(PROFILE)
    assert [(json.loads(change["traits"]).get("computed"), change["event_time"]) for change in changes] == [
        ({"orders": 3}, 10),
        ({"orders": 4}, 30),
        (None, 40),
    ]
    assert {(change["change"], change["message_id"], *change["changed"]) for change in changes} == {
        ("COMPUTED", None, "computed.orders")
    }
    assert len({change["event_id"] for change in changes}) == 3
    assert bench.take(OUTCOMES) == []


def test_a_newer_definition_wins_whatever_its_time(bench: Bench) -> None:
    bench.compute('"a"', 100, version=1)
    bench.compute('"b"', 5, version=2)
    bench.compute('"c"', 200, version=1)
    assert [json.loads(change["traits"])["computed"]["orders"] for change in bench.take(PROFILE)] == ["a", "b"]


def test_repeated_values_and_those_of_a_replaced_process_change_nothing(bench: Bench) -> None:
    """All values have one stream time; the process of epoch 7 is replaced by that of epoch 8, and still publishes."""
    for value, epoch, sequence in [
        ("1", 7, 1),
        ("1", 8, 1),
        ("2", 8, 2),
        ("1", 7, 1),
        ("5", 7, 2),
        ("1", 8, 1),
        ("3", 8, 5),
        ("3", 8, 6),
    ]:
        bench.compute(value, 10, epoch=epoch, sequence=sequence)
    assert [json.loads(change["traits"])["computed"]["orders"] for change in bench.take(PROFILE)] == [1, 2, 3]
    outcomes = ["CHANGED", "UNCHANGED", "CHANGED", "OUTDATED", "OUTDATED", "OUTDATED", "CHANGED", "UNCHANGED"]
    assert bench.counted == [(AGGREGATES, outcome) for outcome in outcomes]


def test_a_record_of_a_producer_without_epochs_is_read(bench: Bench) -> None:
    """Its writer's schema ends before the epoch."""
    bench.compute("1", 10)
    bench.compute("2", 10, epoch=7, sequence=1)
    bench.compute("3", 11)
    assert [json.loads(change["traits"])["computed"]["orders"] for change in bench.take(PROFILE)] == [1, 2, 3]


def test_an_identify_leaves_computed_traits_alone(bench: Bench) -> None:
    bench.compute("3", 10)
    bench.send("identify", {"traits": {"plan": "pro"}})
    assert json.loads(bench.take(PROFILE)[-1]["traits"]) == {"computed": {"orders": 3}, "plan": "pro"}


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"value": "nope"}, "bad_json"),
        ({"value": "[" * 33}, "too_deep"),
        ({"trait_key": ""}, "missing_trait_key"),
        ({"user_id": "eve"}, "wrong_key"),
        ({"as_of": -1}, "bad_timestamp"),
    ],
)
def test_a_computed_trait_that_is_none_goes_to_the_dead_letters(bench: Bench, fields: dict[str, Any], code: str) -> None:
    bench.compute(**{"value": "1", "as_of": 10, **fields})
    assert [refusal.code for refusal in bench.task.refusals] == [code]
    assert bench.task.outputs == []
    assert bench.task.states() == {}
    assert bench.counted == [(AGGREGATES, "REFUSED")]


def test_computed_traits_do_not_move_the_event_clock() -> None:
    bench = Bench(Clock.EVENT)
    bench.compute("1", RECEIVED_MS)
    assert bench.task.stream_time_ms == 0


def test_an_unchanged_profile_is_not_encoded_again(bench: Bench) -> None:
    bench.send("identify", {"traits": {"b": 1, "a": 1.50}})
    text = bench.take_one(PROFILE)["traits"]
    bench.send("identify", {"traits": {"a": 1.5}}, message_id="m-2")
    assert bench.take_one(PROFILE)["traits"] == text == msgspec.json.encode({"b": 1, "a": 1.5}).decode()


def test_without_a_catalog_that_can_be_relied_on_the_worker_stops(bench: Bench) -> None:
    bench.problem = "catalog.products: the view broke"
    with pytest.raises(CatalogLost, match="the view broke"):
        bench.send("track", {"event": "A"})
    assert bench.task.outputs == []


def test_events_of_both_topics_have_one_order_over_units_and_restarts(bench: Bench) -> None:
    first = RECEIVED_MS * 1000
    bench.send("track", {"event": "A"}, message_id="1", received_at=first + 5)
    bench.send("identify", {"traits": {"plan": "pro"}}, message_id="2", received_at=first + 5)
    events = [*bench.take(BEHAVIOUR), *bench.take(PROFILE)]
    bench.task = bench.task.restart()
    bench.send("track", {"event": "A"}, message_id="3", received_at=first)
    bench.send("track", {"event": "A"}, message_id="4", received_at=first + 20)
    events += bench.take(BEHAVIOUR)
    orders = {event["message_id"]: (event["order"] - first, max(0, event["previous_order"] - first)) for event in events}
    assert orders == {"1": (5, 0), "2": (6, 5), "3": (7, 6), "4": (20, 7)}
