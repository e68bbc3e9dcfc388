"""Adapter: the product catalog, the topic `catalog.products` kept in memory."""

from confluent_kafka import Message

from starling_common.kafka import TopicView
from starling_common.logs import log
from starling_common.topics import PRODUCTS
from starling_common.values import record_key
from starling_common.wire import Codec, DecodeError
from starling_items.enrich import Product


class Catalog:
    """All products as last listed. `find` may be called from any thread."""

    def __init__(self, brokers: str, codec: Codec) -> None:
        """Opens nothing; `start` does. The codec is used by the reading thread alone."""
        self._codec = codec
        self._products: dict[bytes, Product] = {}
        self._view = TopicView(brokers, PRODUCTS, self.apply)

    def start(self) -> None:
        """Returns once the whole catalog is at hand. Raises: BrokerUnavailable."""
        self._view.start()

    def stop(self) -> None:
        """Stop following the topic."""
        self._view.stop()

    def problem(self) -> str | None:
        """Why the catalog no longer follows its topic; None while it does."""
        return self._view.problem()

    def find(self, workspace: str, product_id: str) -> Product | None:
        """What is known of a product; None when it is not listed."""
        return self._products.get(record_key(workspace, product_id))

    def apply(self, message: Message) -> None:
        """Take one record over; a broken one is told and leaves the product as it was."""
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
