"""What was sold: revenue and quantity by product and by the region that the buyer's address was in.

An order says who bought and what; its buyer's traits and the catalog's entries of its products are in the same record, as
they were when the order came in. The normalizer has joined them, once and for all: so this view is the same whenever
and however often it is computed, and a buyer who moves takes no former sale along.
"""

from pyspark.sql import Column, DataFrame, functions

from starling_common.topics import BEHAVIOUR
from starling_spark.jobs.views.view import View

_ORDER = "Order Completed"
_UNKNOWN = "unknown"
_LINE = "product_id STRING, quantity STRING, price STRING, revenue STRING"

_MONEY = "DECIMAL(24,6)"
"""Exact, so that sums are the same in whatever order orders come; what does not fit is no price."""


def sales(events: DataFrame) -> DataFrame:
    """Order lines: those under `products`, or the order itself where it names one product.

    A line's revenue is its own `revenue`, else price times quantity; the price that is missing is the catalog's; a
    quantity that is missing is 1. A line of which product or revenue cannot be told is left out.
    """
    orders = events.where(functions.col("name") == _ORDER).select(
        "workspace",
        "event_time",
        _region(functions.col("traits")).alias("region"),
        functions.col("products").alias("known"),
        functions.explode(_texts(functions.col("properties"))).alias("text"),
    )
    lines = orders.withColumn("line", functions.from_json("text", _LINE))
    quantity = functions.coalesce(functions.expr("try_cast(line.quantity AS DECIMAL(9,3))"), functions.lit(1).cast("DECIMAL(9,3)"))
    return (
        lines.withColumns({"price": _price(), "quantity": quantity})
        .select(
            "workspace",
            "event_time",
            functions.col("line.product_id").alias("product_id"),
            "region",
            functions.coalesce(_money("line.revenue"), _money("try_multiply(price, quantity)")).alias("revenue"),
            functions.col("quantity").cast("DECIMAL(18,3)").alias("quantity"),
        )
        .where("product_id IS NOT NULL AND revenue IS NOT NULL")
    )


def _texts(properties: Column) -> Column:
    """Each line as JSON text, so that one that makes no sense does not spoil the others."""
    listed = functions.from_json(properties, "products ARRAY<STRING>")["products"]
    return functions.when(functions.size(listed) > 0, listed).otherwise(functions.array(properties))


def _region(traits: Column) -> Column:
    # What address forms call it differs; some profiles have it at the top.
    places = ("$.address.region", "$.address.state", "$.region", "$.state")
    found = [functions.nullif(functions.get_json_object(traits, place), functions.lit("")) for place in places]
    return functions.coalesce(*found, functions.lit(_UNKNOWN))


def _price() -> Column:
    known = functions.expr(f"try_cast(get(filter(known, one -> one.product_id = line.product_id), 0).price AS {_MONEY})")
    return functions.coalesce(_money("line.price"), known)


def _money(text: str) -> Column:
    return functions.expr(f"try_cast({text} AS {_MONEY})")


VIEW = View(
    name="sales_by_product_region",
    version=1,
    topic=BEHAVIOUR,
    record="BehaviourEvent",
    window_hours=6,
    dimensions=("product_id", "region"),
    measures=("revenue", "quantity"),
    rows=sales,
)
