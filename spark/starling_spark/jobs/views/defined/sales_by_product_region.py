"""Sales: revenue and quantity by product and by the region of the buyer's address.

An order record has the buyer, the products, the buyer's traits and the catalog's entries of the products, as joined by the
normalizer when the order was received. A repeated computation therefore gives the same view, and a change of address does
not move former sales.
"""

from pyspark.sql import Column, DataFrame, functions

from starling_common.kafka.topics import BEHAVIOUR
from starling_spark.jobs.views.view import View

_ORDER = "Order Completed"
_UNKNOWN = "unknown"
_LINE = "product_id STRING, quantity STRING, price STRING, revenue STRING"

_MONEY = "DECIMAL(24,6)"
"""Exact, so that sums do not depend on the order of events; a value that does not fit is not a price."""


def sales(events: DataFrame) -> DataFrame:
    """Return the order lines: those under `products`, or the order itself when it has one product.

    A line's revenue is its `revenue`, otherwise price times quantity. A missing price is the catalog's, a missing quantity is
    1. A line without a product or a revenue is dropped.
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
    """Return each line as JSON text, so that an invalid line does not affect the others."""
    listed = functions.from_json(properties, "products ARRAY<STRING>")["products"]
    return functions.when(functions.size(listed) > 0, listed).otherwise(functions.array(properties))


def _region(traits: Column) -> Column:
    # The field name differs between address forms; some profiles have it at the top level.
    paths = ("$.address.region", "$.address.state", "$.region", "$.state")
    found = [functions.nullif(functions.get_json_object(traits, path), functions.lit("")) for path in paths]
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
    names=(_ORDER,),
    columns=("traits", "properties", "products"),
)
