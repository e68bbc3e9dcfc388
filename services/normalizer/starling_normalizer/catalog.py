"""Adapter: the product catalog, a view of the topic `catalog.products` in memory."""

from confluent_kafka import Message

from starling_common.kafka import TopicView
from starling_common.logs import log
from starling_common.topics import PRODUCTS
from starling_common.values import record_key
from starling_common.wire import Codec, DecodeError
from starling_items.enrich import Product


class Catalog:
    """The latest version of every product. `find` is thread-safe."""

    def __init__(self, brokers: str, codec: Codec) -> None:
        """Open no connection; `start` does. Only the reading thread uses the codec."""
        self._codec = codec
        self._products: dict[bytes, Product] = {}
        self._view = TopicView(brokers, PRODUCTS, self.apply)

    def start(self) -> None:
        """Start to read the topic; return when the whole catalog is loaded. Raises: BrokerUnavailable."""
        self._view.start()

    def stop(self) -> None:
        """Stop following the topic."""
        self._view.stop()

    def problem(self) -> str | None:
        """Return the error that stopped the view, or None while it follows its topic."""
        return self._view.problem()

    def find(self, workspace: str, product_id: str) -> Product | None:
        """Return a product, or None if it is not listed."""
        return self._products.get(record_key(workspace, product_id))

    def apply(self, message: Message) -> None:
        """Apply one record. An invalid record is logged, and the product keeps its previous version."""
        key, value = message.key() or b"", message.value()
        if value is None:
            self._products.pop(key, None)
            return
        try:
            listed = self._codec.decode(value)
        except DecodeError as error:
            log(__name__).error("product_refused", key=repr(key), offset=message.offset(), code=error.code, message=str(error))
            return
        self._products[key] = Product(listed["category"], listed["price"], listed["brand"], listed["name"])
