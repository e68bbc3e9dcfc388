"""Sales: revenue and quantity by product and by the region of the buyer's address.

An order record has the buyer, the products, the buyer's traits and the catalog's entries of the products, as joined by the
normalizer when the order was received. A repeated computation therefore gives the same view, and a change of address does
not move former sales.
"""

from collections.abc import Mapping

from pyspark.sql import Column, functions

from starling_common.kafka.topics import BEHAVIOUR
from starling_spark.jobs.views.view import View

_ORDER = "Order Completed"
_UNKNOWN = "unknown"
_LINE = "product_id STRING, quantity STRING, price STRING, revenue STRING"
_ADDRESS = "region STRING, state STRING"

_MONEY = "DECIMAL(24,6)"
"""Exact, so that sums do not depend on the order of events; a value that does not fit is not a price."""
_QUANTITY = "DECIMAL(9,3)"


def sales(json: Mapping[str, Column]) -> Column:
    """Return the order lines: those under `products`, or the order itself when it has one product.

    A line's revenue is its `revenue`, otherwise price times quantity. A missing price is the catalog's, a missing quantity is
    1. A line without a product or a revenue is dropped.
    """
    region = _region(json["traits"])
    lines = functions.transform(_sent(json["properties"]), lambda line: _sold(line, region))
    return functions.filter(lines, lambda line: line["product_id"].isNotNull() & line["revenue"].isNotNull())


def _sent(order: Column) -> Column:
    listed = order["products"]
    # Each line is JSON text, so that an invalid line does not affect the others.
    lines = functions.transform(listed, lambda text: functions.from_json(text, _LINE))
    itself = functions.struct(*[order[name].alias(name) for name in ("product_id", "quantity", "price", "revenue")])
    return functions.when(functions.size(listed) > 0, lines).otherwise(functions.array(itself))


def _region(traits: Column) -> Column:
    # The field name differs between address forms; some profiles have it at the top level.
    address = traits["address"]
    found = (address["region"], address["state"], traits["region"], traits["state"])
    return functions.coalesce(*[functions.nullif(one, functions.lit("")) for one in found])


def _sold(line: Column, region: Column) -> Column:
    """Return what a line of an order adds; product or revenue may be null."""
    product = line["product_id"]
    quantity = functions.coalesce(line["quantity"].try_cast(_QUANTITY), functions.lit(1).cast(_QUANTITY))
    entry = functions.get(functions.filter(functions.col("products"), lambda one: one["product_id"] == product), functions.lit(0))
    price = functions.coalesce(line["price"].try_cast(_MONEY), entry["price"].try_cast(_MONEY))
    return functions.struct(
        product.alias("product_id"),
        # Here, so that Spark knows that it is not null, as in the state of former releases.
        functions.coalesce(region, functions.lit(_UNKNOWN)).alias("region"),
        functions.coalesce(line["revenue"].try_cast(_MONEY), functions.try_multiply(price, quantity).try_cast(_MONEY)).alias(
            "revenue"
        ),
        quantity.cast("DECIMAL(18,3)").alias("quantity"),
    )


VIEW = View(
    name="sales_by_product_region",
    version=1,
    topic=BEHAVIOUR,
    record="BehaviourEvent",
    window_hours=6,
    dimensions=("product_id", "region"),
    measures=("revenue", "quantity"),
    lines=sales,
    names=(_ORDER,),
    columns=("products",),
    json={"properties": f"products ARRAY<STRING>, {_LINE}", "traits": f"address STRUCT<{_ADDRESS}>, {_ADDRESS}"},
)
