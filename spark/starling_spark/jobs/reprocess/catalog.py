"""Adapter: the current product catalog, read once."""

from starling_common.kafka.topics import PRODUCTS
from starling_items.enrich import Product
from starling_spark.history.products import listed_products
from starling_spark.jobs.reprocess.context import RunContext


def products_now(context: RunContext) -> dict[bytes, Product]:
    """Return the products by record key (`workspace/product_id`). An unreadable record leaves the product unchanged."""
    last = listed_products(context.spark, context.settings.kafka.brokers, context.wire, context.topic(PRODUCTS))
    columns = ["key", *(f"record.{name}" for name in Product._fields)]
    return {bytes(row["key"]): Product(*row[1:]) for row in last.select(*columns).collect()}
