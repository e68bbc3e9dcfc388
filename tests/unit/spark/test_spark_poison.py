"""A record that makes the code of a job raise is refused, and all other rows are as in a run without it."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import types
from pyspark.sql.pandas.types import to_arrow_schema

from starling_common.failpoints.raising import Raising
from starling_common.settings import Clock
from starling_common.wire import RegistryUnavailable
from starling_segments.measures import MeasurePlan
from starling_spark.jobs.profiles.definitions.entries import first_entries
from starling_spark.jobs.profiles.definitions.plans import compile_traits
from starling_spark.jobs.profiles.fold import folding
from starling_spark.jobs.profiles.fold.bucket import Computed, Unfoldable
from starling_spark.jobs.profiles.fold.chunks import Chunk, Refusal
from starling_spark.jobs.profiles.fold.folding import BucketFold
from starling_spark.jobs.profiles.fold.matches import ChunkBuilder, RecordDecoders
from starling_spark.jobs.profiles.fold.outputs import computed_encoder, unpack
from starling_spark.jobs.profiles.query import transform
from starling_spark.kafka.codec import TopicSchema, Wire
from starling_spark.kafka.decoding import REFUSED, Reading, _decoder
from starling_spark.kafka.sources import RECORDS, Raw
from tests.unit.spark.keeping import DAY_MS, ORDERS, START_MS, Partition, computed, defined, traits, values


def _chunk(values: list[bytes], error: Exception | None = None) -> tuple[Chunk, list[tuple[bytes | None, str]]]:
    """Return the chunk of events of five users, and the refused (value, code)."""
    refused: list[tuple[bytes | None, str]] = []

    def read_event(value: bytes) -> tuple[Any, ...]:
        if value.startswith(b"poison"):
            raise error or RecursionError("too deep")
        number = int(value)
        return "w", f"u{number % 5}", "Order Completed", START_MS + number, f"c{number}", "{}"

    def refuse(raw: Raw, code: str, _message: str) -> Refusal:
        refused.append((raw.value, code))
        return Refusal(raw.key, raw.value or b"", raw.timestamp_ms, "")

    decoders = RecordDecoders("events", Clock.EVENT, 0, read_event, lambda _: (0, ""), refuse)
    builder = ChunkBuilder(decoders, compile_traits(traits(defined("n", ORDERS))))
    for offset, value in enumerate(values):
        raw = Raw("events", 0, offset, 7, b"k", value, None)
        builder.add(raw.topic, raw.partition, raw.timestamp_ms, raw.value, partial(_same, raw))
    return builder.chunks()[0], refused


def _same(raw: Raw) -> Raw:
    return raw


def test_an_event_that_makes_the_code_raise_is_refused_and_the_others_are_folded() -> None:
    others = [b"%d" % number for number in range(12)]
    chunk, refused = _chunk([*others[:5], b"poison 1", *others[5:], b"poison 2"])
    expected, _ = _chunk(others)
    assert (chunk.now_ms, chunk.moved_by, chunk.users) == (expected.now_ms, expected.moved_by, expected.users)
    assert refused == [(b"poison 1", "poison"), (b"poison 2", "poison")]


def test_an_event_without_a_registry_is_not_refused() -> None:
    with pytest.raises(RegistryUnavailable):
        _chunk([b"1", b"poison"], RegistryUnavailable("away"))


_RECORD: Mapping[str, Any] = {
    "workspace": "w", "product_id": "p", "category": "c", "price": 1.5, "brand": None, "name": "n", "listed_at": 5,
}  # fmt: skip


def _decoded(more: Callable[[Mapping[str, Any]], Any]) -> list[dict[str, Any]]:
    """Return the decoded rows of the products p0 to p4, with a further column `more` of 32 bits."""
    wire = Wire("http://127.0.0.1:1", (TopicSchema("products", "ProductListed", 7),))
    values = [wire.codec("products").encode({**_RECORD, "product_id": f"p{number}"}) for number in range(5)]
    fields = types.StructType([types.StructField("product_id", types.StringType())])
    extra = types.StructType([types.StructField("more", types.IntegerType())])
    out = types.StructType(
        [
            *RECORDS.fields,
            types.StructField("record", types.StructType([*fields.fields, *extra.fields])),
            types.StructField("refused", REFUSED),
        ]
    )
    rows = [
        {"topic": "products", "partition": 0, "offset": at, "timestamp_ms": 1, "key": b"k", "value": value, "headers": None}
        for at, value in enumerate(values)
    ]
    batch = pa.RecordBatch.from_pylist(rows, to_arrow_schema(RECORDS))
    reading = Reading(wire, "products", fields, extra, lambda record: (more(record),))
    return [row for made in _decoder(reading, out)([batch]) for row in made.to_pylist()]


@pytest.mark.parametrize("fails", ["raises", "does not fit"])
def test_a_record_that_cannot_become_a_row_is_refused_and_the_others_are_decoded(
    fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def more(record: Mapping[str, Any]) -> int:
        number = int(record["product_id"][1:])
        return (1 // 0 if fails == "raises" else 1 << 40) if number == 3 else number

    rows = _decoded(more)
    assert [row["record"] and row["record"]["more"] for row in rows] == [0, 1, 2, None, 4]
    assert [row["refused"] and row["refused"]["code"] for row in rows] == [None, None, None, "poison", None]
    assert rows[3]["refused"]["schema_id"] == 7


def test_a_full_disk_is_no_refusal() -> None:
    def more(_record: Mapping[str, Any]) -> int:
        raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space left"):
        _decoded(more)


def _orders(*users: str) -> list[tuple[str, int, str, dict[str, Any]]]:
    return [(user, START_MS + number, "Order Completed", {}) for number, user in enumerate(users)]


def test_an_event_that_makes_the_fold_raise_changes_nothing_and_the_others_are_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    poisoned, other = Partition(defined("n", ORDERS)), Partition(defined("n", ORDERS))
    events = _orders("ann", "bob", "ann", "bob", "ann", "cy")
    fold, poison_ms = MeasurePlan.fold, {START_MS + 2, START_MS + 5}

    def fragile(measures: MeasurePlan, state: Any, happened: tuple[int, Any], now: int) -> None:
        fold(measures, state, happened, now)
        if happened[0] in poison_ms:
            raise ZeroDivisionError("division by zero")

    chunk = poisoned.chunk(events)
    monkeypatch.setattr(MeasurePlan, "fold", fragile)
    found, made = _folded(poisoned, [chunk])
    assert [(event.user, event.time_ms - START_MS, event.why.code) for event in found] == [
        ("w/ann", 2, "poison"),
        ("w/cy", 5, "poison"),
    ]
    monkeypatch.undo()
    expected = other.batch([event for event in events if event[1] not in poison_ms], START_MS + 5)
    assert values(made) == values(expected)
    assert poisoned.store.users == other.store.users


def _folded(partition: Partition, chunks: list[Chunk], raising: Raising | None = None) -> tuple[list[Unfoldable], list[Computed]]:
    fold = BucketFold(partition.plans, partition.store, 0, raising)
    refused = [event for chunk in chunks for event in fold.fold(chunk, msgspec.msgpack.encode(chunk))]
    finished = list(fold.finish(1_000_000))
    return [*refused, *(one for one in finished if isinstance(one, Unfoldable))], computed(finished)


_EVENTS = st.lists(
    st.tuples(st.sampled_from(["ann", "bob", "cy"]), st.integers(0, 40), st.integers(-5, 5)), min_size=1, max_size=30
)


@settings(max_examples=60, deadline=None)
@given(events=_EVENTS, sizes=st.lists(st.integers(1, 7), min_size=30, max_size=30), most=st.integers(1, 3), data=st.data())
def test_whatever_events_make_the_fold_raise_all_others_give_the_same_values(
    events: list[tuple[str, int, int]], sizes: list[int], most: int, data: st.DataObject
) -> None:
    """Over all chunk boundaries, and with states that are stored in the middle of the batch."""
    poisonous = data.draw(st.sets(st.sampled_from(range(len(events)))))
    spent = {"event": "Order Completed", "measure": {"sum": "revenue"}, "within": "30d"}
    poisoned, other = (Partition(defined("spent", spent), defined("n", ORDERS)) for _ in range(2))
    all_events = [
        (user, START_MS + day * DAY_MS + number, "Order Completed", {"revenue": revenue})
        for number, (user, day, revenue) in enumerate(events)
    ]
    end_ms = max(event[1] for event in all_events)
    raised = {all_events[number][1] for number in poisonous}
    fold = MeasurePlan.fold

    def fragile(measures: MeasurePlan, state: Any, happened: tuple[int, Any], now: int) -> None:
        fold(measures, state, happened, now)
        if happened[0] in raised:
            raise RecursionError("too deep")

    left, chunks = list(all_events), []
    for size in sizes:
        some, left = left[:size], left[size:]
        chunks.append(poisoned.chunk(some, end_ms))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MeasurePlan, "fold", fragile)
        patch.setattr(folding, "MAX_USERS_IN_MEMORY", most)
        refused, made = _folded(poisoned, chunks)
    assert sorted(event.time_ms for event in refused) == sorted(raised)
    _, expected = _folded(other, [other.chunk([event for event in all_events if event[1] not in raised], end_ms)])
    assert values(made) == values(expected)
    for days in (1, 20, 31):
        assert values(poisoned.batch([], end_ms + days * DAY_MS)) == values(other.batch([], end_ms + days * DAY_MS))


def test_a_user_whose_values_raise_holds_back_no_other() -> None:
    partition = Partition(defined("n", ORDERS))
    raising = Raising.of("raise_in_values:w/bob")
    refused, made = _folded(partition, [partition.chunk(_orders("ann", "bob", "cy"))], raising)
    assert [(one.user, one.why.code) for one in refused] == [("w/bob", "poison")]
    assert values(made) == {("ann", "n"): 1, ("cy", "n"): 1}
    # The user's state is complete: the next event gives the value of all of them.
    assert values(partition.batch(_orders("bob"), START_MS + 9)) == {("bob", "n"): 2}


def test_a_trait_that_cannot_be_evaluated_holds_back_no_other_trait() -> None:
    partition = Partition(defined("n", ORDERS), defined("days", {**ORDERS, "measure": {"days": True}}))
    plan = partition.plans["w"]

    def fragile(_state: Any, _now_ms: int) -> Any:
        raise OverflowError("too many days")

    good, days = plan.readings
    assert days is not None
    partition.plans = {"w": replace(plan, readings=(good, replace(days, read=fragile)))}
    refused, made = _folded(partition, [partition.chunk(_orders("ann"))])
    assert [(one.user, "the computed trait days: OverflowError" in one.why.message) for one in refused] == [("w/ann", True)]
    assert values(made) == {("ann", "n"): 1}


def test_the_job_writes_the_dead_letter_of_an_event_that_it_cannot_fold(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"aggregates": "AggregateComputed", "dlq": "DeadLetter"}
    wire = Wire("http://127.0.0.1:1", tuple(TopicSchema(topic, name, at) for at, (topic, name) in enumerate(names.items(), 1)))
    partition = Partition(defined("n", ORDERS))
    processor: Any = transform._Processor(
        transform.Job(
            transform.Topics("events", "clock", "aggregates", "dlq"), wire, Clock.EVENT, first_entries((defined("n", ORDERS),))
        )
    )
    processor._store, processor._plans, processor._published_to = partition.store, partition.plans, {}
    processor._encode = computed_encoder(wire.codec("aggregates"), 1)
    fold = MeasurePlan.fold

    def fragile(measures: MeasurePlan, state: Any, happened: tuple[int, Any], now: int) -> None:
        fold(measures, state, happened, now)
        if happened[0] == START_MS + 1:
            raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(MeasurePlan, "fold", fragile)
    chunks = [partition.chunk(_orders(*users)) for users in (("ann", "bob"), ("ann", "ann"), ("cy",))]
    chunks[0].refused.append(Refusal(b"k", b"unreadable", 7, "c"))
    rows = iter([{"partition": 0, "chunk": msgspec.msgpack.encode(chunk)} for chunk in chunks])
    packed = [row["packed"] for row in processor.handleInputRows((0,), rows, None)]
    made = [row for batch in unpack([pa.RecordBatch.from_pydict({"packed": packed})]) for row in batch.to_pylist()]
    values_made = {
        row["key"]: wire.codec("aggregates").decode(row["value"])["value"] for row in made if row["topic"] == "aggregates"
    }
    assert values_made == {b"w/ann": "2", b"w/cy": "1"}
    letters = [row for row in made if row["topic"] == "dlq"]
    assert [row["value"] for row in letters if row["key"] == b"k"] == [b"unreadable"]
    poisoned = [wire.codec("dlq").decode(row["value"]) for row in letters if row["key"] != b"k"]
    assert [(one["code"], one["origin_topic"], one["key"]) for one in poisoned] == [
        ("poison", "(fold)", b"w/bob"),
        ("poison", "(fold)", b"w/ann"),
    ]
