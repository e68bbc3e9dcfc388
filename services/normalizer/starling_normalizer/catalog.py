"""Adapter: the product catalog, the topic `catalog.products` folded into memory."""

from starling_common.kafka.folded_topic import FoldedTopic
from starling_common.kafka.topics import PRODUCTS
from starling_common.outcome import Done
from starling_common.values import record_key
from starling_common.wire import Codec, Record
from starling_items.enrich import Product

Products = dict[bytes, Product]
"""Key of the record -> the latest version of the product."""


class Catalog(FoldedTopic[Products]):
    """The latest version of every product. `find` is thread-safe."""

    def __init__(self, brokers: str, codec: Codec) -> None:
        """Open no connection; `start` does."""
        super().__init__((brokers, PRODUCTS), codec, {}, fold_product)

    def find(self, workspace: str, product_id: str) -> Product | None:
        """Return a product, or None if it is not listed."""
        # Hot: without the lock, for the dictionary is changed in place, by one atomic operation a record.
        return self._value.get(record_key(workspace, product_id))


def fold_product(products: Products, key: bytes, listed: Record | None) -> Done[Products]:
    """Return the products after one record."""
    if listed is None:
        products.pop(key, None)
    else:
        products[key] = Product(listed["category"], listed["price"], listed["brand"], listed["name"])
    return Done(products)
