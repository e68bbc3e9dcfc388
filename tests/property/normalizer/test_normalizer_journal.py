"""Every ingest record gets exactly one outcome, which a reassignment of its task does not change."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from starling_common.kafka.topics import BEHAVIOUR, INGEST_KINDS, OUTCOMES, PROFILE
from starling_common.settings import Clock
from starling_items.enrich import Product
from starling_items.profile import Profile
from starling_items.work import StageDependencies
from starling_normalizer.agents import Normalizer, NormalizerDependencies, normalizer_service
from starling_normalizer.testing import key_of, local_codecs, received
from starling_stream.testing import Fed, MemoryTask

CODECS = local_codecs()

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["2026-01-01T00:00:00Z", "1969-01-01", "9999-12-31T23:59:59.999999-14:00", "0001-01-01", "sku-1", "a", "b"])
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["product_id", "products", "computed", "traits", "x"]), inner)
    ),
    max_leaves=8,
)
FIELDS = [
    "event",
    "name",
    "category",
    "properties",
    "traits",
    "context",
    "groupId",
    "previousId",
    "timestamp",
    "originalTimestamp",
    "sentAt",
    "other",
]
good = {
    "event": st.just("Order Completed"),
    "properties": st.dictionaries(st.sampled_from(["product_id", "price", "products"]), values, max_size=3),
    "traits": st.dictionaries(st.sampled_from(["plan", "city", "é"]), values, max_size=3),
    "groupId": st.sampled_from(["acme", 5]),
    "previousId": st.sampled_from(["a", "b", 5]),
    "timestamp": st.sampled_from(["2026-01-01T00:00:00Z", "1997-05-05"]),
}
plausible = st.fixed_dictionaries(good).map(json.dumps)
jsonish = st.dictionaries(st.sampled_from(FIELDS), values, max_size=6).map(json.dumps) | values.map(json.dumps)
cut = st.builds(
    lambda text, start, length: text[start : start + length], jsonish | plausible, st.integers(0, 9), st.integers(0, 200)
)
huge = st.sampled_from(
    ["[" * 40_000, '{"event":' * 2000, '{"event": "A", "properties": {"n": ' + "9" * 5000 + "}}", '{"event": "\\ud800"}']
)
items = st.one_of(plausible, plausible, jsonish, cut, st.text(max_size=60), huge)
ids = st.sampled_from([None, "", "a", "b", "ü/ /"])


@st.composite
def arrivals(draw: st.DrawFn) -> Fed:
    kind = draw(st.sampled_from(INGEST_KINDS))
    record: dict[str, Any] = received(
        kind,
        draw(items),
        message_id=draw(st.sampled_from(["m-1", "m-2", "m-3", ""])),
        user_id=draw(ids),
        anonymous_id=draw(ids),
        imported=draw(st.booleans()),
        sent_at=draw(st.sampled_from([None, "2026-01-01T00:00:05Z", "never"])),
    )
    if draw(st.integers(0, 9)) == 0:
        record["kind"] = draw(st.text(max_size=5))
    key = b"default/eve" if draw(st.integers(0, 9)) == 0 else key_of(record)
    return Fed(f"ingest.{kind}", key, CODECS["ingest.track"].encode(record))


def new_task(clock: Clock) -> MemoryTask[Profile]:
    stage_dependencies = StageDependencies(
        clock, lambda _workspace, product_id: Product("shoes", 1.5, None, None) if product_id == "sku-1" else None
    )
    dependencies = NormalizerDependencies(lambda _topic, _outcome: None, lambda: 0, lambda: None)
    return MemoryTask(normalizer_service(Normalizer(CODECS, stage_dependencies, dependencies), clock))


def check_journal(task: MemoryTask[Profile], fed: Fed) -> list[tuple[str, bytes, bytes]]:
    """Feed one record; its outcome must be the only one and agree with everything else that was written."""
    task.feed_all([fed])
    outputs, refusals = task.take_outputs(), len(task.refusals)
    task.refusals.clear()
    [outcome] = [CODECS[OUTCOMES].decode(output.value) for output in outputs if output.topic == OUTCOMES]
    events = [(output.topic, CODECS[output.topic].decode(output.value)) for output in outputs if output.topic != OUTCOMES]
    source = CODECS[fed.topic].decode(fed.value or b"")
    assert (outcome["origin_topic"], outcome["message_id"]) == (fed.topic, source["message_id"])
    if outcome["outcome"] == "ACCEPTED":
        [(topic, event)] = events
        assert topic in {BEHAVIOUR, PROFILE}
        assert (outcome["event_topic"], outcome["event_id"], refusals) == (topic, event["event_id"], 0)
        assert all(isinstance(json.loads(event[name]), dict) for name in ("traits", "context"))
        assert event["event_time"] >= 0
    else:
        assert events == []
        assert refusals == (1 if outcome["outcome"] == "REFUSED" else 0)
        assert (outcome["code"] is None) is (outcome["outcome"] == "DUPLICATE")
    return [(output.topic, output.key, output.value) for output in outputs]


@given(st.lists(arrivals(), max_size=8), st.sampled_from(Clock))
def test_every_record_gets_exactly_one_outcome_and_a_takeover_changes_nothing(feed: list[Fed], clock: Clock) -> None:
    steady, moving = new_task(clock), new_task(clock)
    for fed in feed:
        journal = check_journal(steady, fed)
        moving = moving.restart()
        assert check_journal(moving, fed) == journal
    assert moving.states() == steady.states()


@given(st.lists(arrivals(), max_size=8))
def test_one_unit_of_many_records_equals_many_units(feed: list[Fed]) -> None:
    one_by_one, at_once = new_task(Clock.WALL), new_task(Clock.WALL)
    for fed in feed:
        one_by_one.feed_all([fed])
    at_once.feed_all(feed)
    assert [output.value for output in at_once.outputs] == [output.value for output in one_by_one.outputs]
    assert at_once.states() == one_by_one.states()
