"""Fields of the catalog are added where the sender gave none."""

from typing import Any

import pytest

from starling_items.enrich import MAX_PRODUCTS, Product, join_products

CATALOG = {"1": Product("shoes", 42.5, "Fleet", "Trail runner"), "2": Product("hats", None, None, "Cap")}


@pytest.mark.parametrize(
    ("properties", "joined"),
    [
        ({}, {}),
        ({"a": 1}, {"a": 1}),
        (
            {"product_id": "1"},
            {"product_id": "1", "category": "shoes", "price": 42.5, "brand": "Fleet", "name": "Trail runner"},
        ),
        ({"product_id": 2}, {"product_id": 2, "category": "hats", "name": "Cap"}),
        (
            {"product_id": "1", "price": 1, "name": "", "brand": None},
            {"product_id": "1", "price": 1, "name": "", "category": "shoes", "brand": "Fleet"},
        ),
        ({"product_id": "9"}, {"product_id": "9"}),
        ({"product_id": True}, {"product_id": True}),
        ({"product_id": ["1"]}, {"product_id": ["1"]}),
        ({"products": "1"}, {"products": "1"}),
        (
            {"products": [{"product_id": "2", "n": 3}, "1", {"sku": "1"}]},
            {"products": [{"product_id": "2", "n": 3, "category": "hats", "name": "Cap"}, "1", {"sku": "1"}]},
        ),
    ],
)
def test_join(properties: dict[str, Any], joined: dict[str, Any]) -> None:
    assert join_products(properties, CATALOG.get)[0] == joined


def test_the_typed_list_names_each_product_once_known_or_not() -> None:
    sent = {"product_id": "1", "products": [{"product_id": "9"}, {"product_id": 1}, {"product_id": "2"}]}
    assert join_products(sent, CATALOG.get)[1] == [
        {"product_id": "1", "category": "shoes", "price": 42.5, "brand": "Fleet", "name": "Trail runner"},
        {"product_id": "9", "category": None, "price": None, "brand": None, "name": None},
        {"product_id": "2", "category": "hats", "price": None, "brand": None, "name": "Cap"},
    ]


def test_what_was_given_is_left_unchanged() -> None:
    item = {"product_id": "1"}
    sent = {"product_id": "2", "products": [item]}
    join_products(sent, CATALOG.get)
    assert sent == {"product_id": "2", "products": [{"product_id": "1"}]}
    assert item == {"product_id": "1"}


def test_a_list_without_end_is_joined_up_to_a_bound() -> None:
    sent = {"products": [{"product_id": str(n)} for n in range(MAX_PRODUCTS + 50)]}
    joined, products = join_products(sent, lambda product_id: Product(product_id, None, None, None))
    assert len(products) == MAX_PRODUCTS
    assert [item.get("category") for item in joined["products"]] == [*map(str, range(MAX_PRODUCTS)), *[None] * 50]
