"""Pure core: join the product catalog to an event. Values of the sender take precedence."""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, TypeAlias

from starling_items.item import Json

MAX_PRODUCTS: Final = 100
"""Most products joined to one event; further products stay as sent. The limit keeps an event below the broker's record limit."""


class Product(NamedTuple):
    """One product of the catalog; None for each value that it lacks. `price` is a unit price in the shop's currency."""

    category: str | None
    price: float | None
    brand: str | None
    name: str | None


UNKNOWN: Final = Product(None, None, None, None)

FindProduct: TypeAlias = Callable[[str], Product | None]
"""Looks up a product by its id; returns None for a product that the catalog does not list."""


def join_products(properties: Json, find: FindProduct) -> tuple[Json, list[Json]]:
    """Return the properties with the catalog's values, and the distinct products found in them.

    Product ids are read at `product_id` and at `products.*.product_id`. The argument is not modified.
    """
    if "product_id" not in properties and "products" not in properties:
        return properties, []
    joined = _own_copy(properties)
    known: dict[str, Product] = {}
    for place in _places(joined):
        product_id = str(place["product_id"])
        if product_id not in known:
            if len(known) == MAX_PRODUCTS:
                break
            known[product_id] = find(product_id) or UNKNOWN
        _fill(place, known[product_id])
    return joined, [{"product_id": product_id, **product._asdict()} for product_id, product in known.items()]


def _own_copy(properties: Json) -> Json:
    products = properties.get("products")
    if not isinstance(products, list):
        return dict(properties)
    return {**properties, "products": [dict(item) if isinstance(item, dict) else item for item in products]}


def _places(properties: Json) -> Iterator[Json]:
    products = properties.get("products")
    for place in (properties, *(products if isinstance(products, list) else ())):
        # `type` instead of `isinstance`: a bool is an int in Python, but not a product id.
        if isinstance(place, dict) and type(place.get("product_id")) in {str, int}:
            yield place


def _fill(place: Json, product: Product) -> None:
    for name, value in zip(Product._fields, product, strict=True):
        if value is not None and place.get(name) is None:
            place[name] = value
