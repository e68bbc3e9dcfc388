"""Views as DataFrame in, DataFrame out: no broker, no database."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import Column, DataFrame, SparkSession, functions
from pyspark.sql.pandas.types import to_arrow_schema

from starling_common.wire import schema_text
from starling_demo.dataset import Purchase, load_purchases
from starling_demo.scenario import product_id, properties
from starling_spark.directories import LocalDirectory
from starling_spark.jobs.views.catalogue import views
from starling_spark.jobs.views.defined.sales_by_product_region import VIEW
from starling_spark.jobs.views.groups import Checkpoints, Group
from starling_spark.jobs.views.json_fields import parsed
from starling_spark.jobs.views.transform import counted, events, reading_of, totals, types_of
from starling_spark.jobs.views.unreadable import unreadable
from starling_spark.jobs.views.view import View
from starling_spark.kafka.codec import TopicSchema, Wire
from starling_spark.kafka.columns import columns_of
from starling_spark.kafka.dead_letters import dead_letters
from starling_spark.kafka.decoding import Reading
from starling_spark.kafka.sources import RECORDS

HOUR_MS = 3_600_000
NOON_MS = 1_700_049_600_000
EVENTS = columns_of(schema_text("BehaviourEvent"))
BERLIN = {"address": {"region": "Berlin", "state": "x"}}
ALONE = Group(f"{VIEW.name}-v1-f1-s1-l0", {0: VIEW}, (), {0: ()})
WIRE = Wire("http://127.0.0.1:1", (TopicSchema("events", "BehaviourEvent", 1), TopicSchema("dlq", "DeadLetter", 2)))


def order(
    properties: Any, traits: Any = BERLIN, *, at_ms: int = NOON_MS, products: Iterable[Any] = (), **more: Any
) -> dict[str, Any]:
    return {
        "received_at": 1, "order": 1, "previous_order": 0, "workspace": "w", "user_id": "ann", "event_id": "e", "message_id": "m",
        "kind": "track", "name": "Order Completed", "event_time": at_ms, "properties": json.dumps(properties), "context": "{}",
        "traits": json.dumps(traits), "correlation_id": "c", "anonymous_ids": [], "raw_timestamp": None, "raw_sent_at": None,
        "products": [{"category": None, "price": None, "brand": None, "name": None, **one} for one in products],
    } | more  # fmt: skip


def frame(spark: SparkSession, *orders: dict[str, Any]) -> DataFrame:
    instants = {"received_at", "order", "previous_order", "event_time"}
    rows = [
        tuple(datetime.fromtimestamp(one[name] / 1000, UTC) if name in instants else one[name] for name in EVENTS.fieldNames())
        for one in orders
    ]
    return spark.createDataFrame(rows, EVENTS)


def sold(spark: SparkSession, *orders: dict[str, Any]) -> dict[tuple[str, int, str, str], tuple[str, str]]:
    """(workspace, window's start, product, region) -> (revenue, quantity)."""
    found = {}
    for row in totals(ALONE, frame(spark, *orders)).collect():
        content = json.loads(row["row"])
        assert json.loads(row["place"]) == [content["product_id"], content["region"]]
        key = (row["workspace"], row["window_start_ms"], content["product_id"], content["region"])
        found[key] = (content["revenue"], content["quantity"])
    return found


def test_orders_are_summed_by_product_region_and_six_hours(spark: SparkSession) -> None:
    plain = {"product_id": "p", "revenue": 0.1, "quantity": 2}
    found = sold(
        spark,
        *[order(plain) for _ in range(3)],
        order(plain, at_ms=NOON_MS - 1),
        order(plain, at_ms=NOON_MS + 6 * HOUR_MS - 1),
        order(plain, {"state": "CA"}),
        order(plain, {"address": {"region": ""}}),
        order(plain, workspace="other"),
        order(plain, name="Order Refunded"),
    )
    assert found == {
        ("w", NOON_MS, "p", "Berlin"): ("0.400000", "8.000"),
        ("w", NOON_MS - 6 * HOUR_MS, "p", "Berlin"): ("0.100000", "2.000"),
        ("w", NOON_MS, "p", "CA"): ("0.100000", "2.000"),
        ("w", NOON_MS, "p", "unknown"): ("0.100000", "2.000"),
        ("other", NOON_MS, "p", "Berlin"): ("0.100000", "2.000"),
    }


LINES: Sequence[tuple[Any, Any]] = (
    ({"products": [{"product_id": "p", "price": "2.50", "quantity": 3}, {"product_id": 7, "price": 1}]}, {"p": 7.5, "7": 1}),
    ({"products": [{"product_id": "p"}], "product_id": "other", "revenue": 99}, {"p": 4.25}),
    ({"product_id": "p", "quantity": 2}, {"p": 8.5}),
    ({"products": [], "product_id": "p", "price": 1}, {"p": 1}),
    ({"products": [{"product_id": "p", "price": "free"}, {"product_id": "q"}, {"price": 5}, "x"]}, {"p": 4.25}),
    ({"product_id": "q", "revenue": 1e300, "price": 1e300, "quantity": "many"}, {}),
    ({"product_id": "p", "revenue": "NaN", "price": 1e17, "quantity": 999_999}, {}),
    ({"revenue": 5}, {}),
)
"""Properties of an order, and product -> revenue; the catalog knows that `p` costs 4.25."""


def test_a_line_has_the_sent_price_else_that_of_the_catalog(spark: SparkSession) -> None:
    known = [{"product_id": "p", "price": 4.25}]
    orders = [order(properties, products=known, workspace=str(case)) for case, (properties, _) in enumerate(LINES)]
    found: dict[int, dict[str, float]] = {case: {} for case in range(len(LINES))}
    for (workspace, _, product, _), (revenue, _) in sold(spark, *orders).items():
        found[int(workspace)][product] = float(revenue)
    assert found == {case: expected for case, (_, expected) in enumerate(LINES)}


def test_records_are_read_and_broken_ones_become_dead_letters(spark: SparkSession) -> None:
    good = WIRE.codec("events").encode(order({"product_id": "p", "revenue": 3}))
    headers = [("correlation_id", b"c-1")]
    rows = [("events", 0, number, 7, b"w/ann", value, headers) for number, value in enumerate((good, good[:-1], None))]
    reading, records = Reading.plain(WIRE, "events"), spark.createDataFrame(rows, RECORDS)
    assert [row["row"] for row in totals(ALONE, events(records, [VIEW], reading_of([VIEW], reading))).collect()] == [
        '{"product_id":"p","region":"Berlin","revenue":"3.000000","quantity":"1.000"}'
    ]
    found = unreadable(records, [VIEW], reading).drop("headers").join(records.select("offset", "headers"), "offset")
    letters = [WIRE.codec("dlq").decode(bytes(row["value"])) for row in dead_letters(found, "views", "dlq", WIRE).collect()]
    assert [(one["code"], one["origin_offset"], one["value"], one["stage"], one["workspace"]) for one in letters] == [
        ("broken_avro", 1, good[:-1], "views", "w"), ("bad_framing", 2, b"", "views", "w"),
    ]  # fmt: skip
    assert letters[0]["correlation_id"] == "c-1"


NO_INSTANT_MS = 4 * 10**14


@pytest.mark.parametrize(("names", "refused"), [(("Order Completed",), {1, 2, 3, 5}), ((), {1, 2, 3, 4, 5})])
def test_records_are_refused_that_a_view_cannot_read(spark: SparkSession, names: tuple[str, ...], refused: set[int]) -> None:
    """The text of an event whose name no view counts is not looked at."""
    codec = WIRE.codec("events")
    other = codec.encode(order({}, name="Page Opened"))
    values = [
        other,
        other[:-1],
        other + b"x",
        codec.encode(order({}, name="Page Opened", at_ms=NO_INSTANT_MS)),
        other.replace(b"Berlin", b"Berl\xff\xff"),
        codec.encode(order({})).replace(b"Berlin", b"Berl\xff\xff"),
        codec.encode(order({})),
    ]
    rows: list[tuple[Any, ...]] = [("events", 0, number, 7, b"w/ann", value, []) for number, value in enumerate(values)]
    views, reading = [VIEW, replace(VIEW, names=names)], Reading.plain(WIRE, "events")
    found = unreadable(spark.createDataFrame(rows, RECORDS), views, reading)
    assert {row["offset"] for row in found.collect()} == refused


OTHERS = (("Page Opened", NOON_MS + 9), ("Page Opened", NOON_MS + 5), ("Order Completed", NOON_MS + 7))
"""Names and times of events, in turns of two partitions."""


VIEWS = (VIEW, replace(VIEW, names=()), replace(VIEW, columns=None), replace(VIEW, names=(), columns=None))


@pytest.mark.parametrize("view", VIEWS)
def test_events_that_a_view_leaves_out_move_its_time(spark: SparkSession, view: View) -> None:
    codec = WIRE.codec("events")
    sent = [(number % 2, codec.encode(order({}, name=name, at_ms=at_ms))) for number, (name, at_ms) in enumerate(OTHERS)]
    # One at an instant that no row can have, and one that cannot be read.
    sent += [(1, codec.encode(order({}, name="Page Opened", at_ms=NO_INSTANT_MS))), (0, b"broken")]
    rows: list[tuple[Any, ...]] = [
        ("events", partition, number, 10 + number, b"w/ann", value, []) for number, (partition, value) in enumerate(sent)
    ]
    found = events(spark.createDataFrame(rows, RECORDS), [view], reading_of([view], Reading.plain(WIRE, "events")))

    def highest(time_ms: Column) -> dict[int, int]:
        latest = found.groupBy("partition").agg(functions.max(time_ms).alias("latest")).collect()
        return {row["partition"]: row["latest"] for row in latest}

    assert highest(functions.unix_millis("event_time")) == {0: NOON_MS + 9, 1: NOON_MS + 5}
    assert highest(functions.col("timestamp_ms")) == {0: 14, 1: 13}
    times = sorted(at_ms for name, at_ms in OTHERS if name == "Order Completed" or not view.names)
    left = counted(found).select(functions.unix_millis("event_time").alias("at_ms")).collect()
    assert sorted(row["at_ms"] for row in left) == times


def moments(_: Mapping[str, Column]) -> Column:
    """Events, and their seconds, by name; the types are those of `sales` in part."""
    one = functions.struct(
        functions.coalesce("name", functions.lit("none")).alias("event"),
        functions.lit(1).cast("DECIMAL(18,3)").alias("events"),
        functions.unix_seconds("event_time").cast("DECIMAL(18,3)").alias("seconds"),
    )
    return functions.array(one, one)


MOMENTS = View("moments", 3, VIEW.topic, VIEW.record, 6, ("event",), ("events", "seconds"), moments, columns=("name",))
TOGETHER = (VIEW, MOMENTS, replace(VIEW, name="refunds", names=("Order Refunded",)))


def rows_of(group: Group, found: DataFrame) -> dict[str, list[tuple[Any, ...]]]:
    rows: dict[str, list[tuple[Any, ...]]] = {view.name: [] for view in group.views.values()}
    for workspace, start_ms, number, place, row in totals(group, found).collect():
        rows[group.views[number].name].append((workspace, start_ms, place, row))
    return {name: sorted(own) for name, own in rows.items()}


@pytest.mark.parametrize("wanted", [TOGETHER, TOGETHER[::2], TOGETHER[1:2]])
def test_views_of_one_query_have_the_rows_that_each_has_alone(spark: SparkSession, tmp_path: Path, wanted: Sequence[View]) -> None:
    """Also once some of the views that began together are no longer defined."""
    names = ("Order Completed", "Order Refunded", "Page Opened")
    sent = [
        order(
            {"products": [{"product_id": f"p{number % 3}", "price": number}, {"product_id": "q"}]},
            name=name,
            at_ms=at_ms,
            products=known,
        )
        for number, name in enumerate(names * 4)
        for at_ms in (NOON_MS, NOON_MS + number * HOUR_MS)
        for known in ([], [{"product_id": "q", "price": 4.25}])
    ]
    found, directory = frame(spark, *sent), LocalDirectory(tmp_path)
    types = {view.name: types_of(view, found) for view in TOGETHER}

    def groups(views: Sequence[View]) -> list[Group]:
        return Checkpoints(directory, "f1-s1-l0").groups(views, lambda view: types[view.name])

    assert types["moments"] == ("decimal(18,3)", "decimal(18,3)")
    [whole], [group] = groups(TOGETHER), groups(wanted)
    assert (group.directory, group.columns) == (whole.directory, ("decimal(24,6)", "decimal(18,3)", "decimal(18,3)"))
    alone = {view.name: Group(f"{view.name}-v1-f1-s1-l0", {0: view}, (), {0: ()}) for view in wanted}
    expected = {name: rows_of(one, found)[name] for name, one in alone.items()}
    assert rows_of(group, found) == expected
    assert all(len(rows) > 2 for rows in expected.values())


def test_lines_without_a_dimension_or_a_measure_are_refused(spark: SparkSession) -> None:
    for view, lacking in (
        (replace(MOMENTS, dimensions=("event", "region")), "region"),
        (replace(MOMENTS, measures=("event",)), "event"),
        (replace(MOMENTS, lines=lambda _: functions.col("name")), "event, events, seconds"),
    ):
        with pytest.raises(ValueError, match=f"the lines of the view moments lack {lacking} "):
            types_of(view, frame(spark))


@pytest.mark.long
def test_a_real_purchase_history_gives_what_pandas_gives(spark: SparkSession) -> None:
    """70,000 purchases of a music shop; the region is the test's, for the history has none."""
    history = load_purchases()
    bought = pd.DataFrame(
        {
            "window": [one.at_ms - one.at_ms % (6 * HOUR_MS) for one in history],
            "product": [product_id(one) for one in history],
            "region": [region_of(one) for one in history],
            "cents": [round(one.revenue * 100) for one in history],
            "quantity": [one.quantity for one in history],
        }
    )
    expected = {
        key: (Decimal(int(cents)) / 100, Decimal(int(quantity)))
        for key, cents, quantity in bought.groupby(["window", "product", "region"]).sum().itertuples()
    }
    columns = {
        **{field.name: [None] * len(history) for field in EVENTS.fields},
        "workspace": ["w"] * len(history),
        "name": ["Order Completed"] * len(history),
        "event_time": [one.at_ms * 1000 for one in history],
        "properties": [json.dumps(properties(one)) for one in history],
        "traits": [json.dumps({"address": {"region": region_of(one)}}) for one in history],
    }
    events_of_all = spark.createDataFrame(pa.Table.from_pydict(columns, to_arrow_schema(EVENTS)))
    found = {}
    for row in totals(ALONE, events_of_all).collect():
        content = json.loads(row["row"])
        key = (row["window_start_ms"], content["product_id"], content["region"])
        found[key] = (Decimal(content["revenue"]), Decimal(content["quantity"]))
    assert found == expected
    assert len(found) > 4000


def region_of(purchase: Purchase) -> str:
    return f"region {purchase.user_id[-1]}"


def test_every_file_is_a_view() -> None:
    assert [view.name for view in views()] == ["sales_by_product_region"]


def json_lines(json: Mapping[str, Column]) -> Column:
    return functions.array(functions.to_json(json["properties"]))


SKUS = replace(VIEW, name="skus", lines=json_lines, json={"properties": "sku STRING, at STRUCT<city STRING>"})
CITIES = replace(SKUS, name="cities", names=("Order Refunded",), json={"properties": "sku STRING, at STRUCT<state STRING>"})
SIZES = replace(SKUS, name="sizes", names=("Order Refunded",), json={"properties": "size INT, sku STRING"})


def test_views_share_the_fields_that_they_read_of_a_json_column(spark: SparkSession) -> None:
    """Except one that reads a field as another type. An event is parsed only for the views that count it."""
    sent = {"sku": "s", "size": 3, "at": {"city": "Bonn", "state": "NRW"}}
    names = ("Order Completed", "Order Refunded", "Page Opened")
    found = frame(spark, *[order(sent, name=name) for name in names], order(["s"]), order("text"))
    given, of_view = parsed(found, (SKUS, CITIES, SIZES))
    assert [name for name in given.columns if name not in found.columns] == ["properties_0", "properties_1"]
    rows = given.select(*[view.lines(of_view[view.name])[0].alias(view.name) for view in (SKUS, CITIES, SIZES)]).collect()
    both, empty = '{"sku":"s","at":{"city":"Bonn"},"size":3}', "{}"
    assert [(row["skus"], row["cities"]) for row in rows] == [
        (both, None), (both, '{"sku":"s","at":{"state":"NRW"}}'), (None, None), (empty, None), (empty, None),
    ]  # fmt: skip
    assert [row["sizes"] for row in rows] == [row["skus"] for row in rows]
    [everything] = parsed(found, (replace(SKUS, names=()), SIZES)).events.where("name = 'Page Opened'").collect()
    assert everything["properties_0"]["sku"] == "s"


def test_fields_of_a_json_column_are_those_of_a_struct(spark: SparkSession) -> None:
    with pytest.raises(ValueError, match="the fields of properties that the view skus reads are not those of a struct: INT"):
        parsed(frame(spark), [replace(SKUS, json={"properties": "INT"})])
