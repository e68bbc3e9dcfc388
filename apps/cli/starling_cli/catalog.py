"""Adapter: the products of a file, published to `catalog.products`."""

import csv
import json
from collections.abc import Iterator, Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from starling_common.kafka.products import ProductFeed
from starling_local.errors import NotPossible

_FIELDS = ("product_id", "category", "price", "brand", "name")


def products(path: Path) -> Iterator[dict[str, Any]]:
    """Yield each product of a `.csv` file (with a header) or a `.jsonl` file.

    Raises: NotPossible with the number of the invalid product.
    """
    with path.open(newline="", encoding="utf-8") as source:
        rows: Iterator[Any] = map(_json_row, source) if path.suffix in (".jsonl", ".ndjson") else iter(csv.DictReader(source))
        for number, row in enumerate(rows, start=1):
            try:
                yield product_of(row)
            except (ValueError, TypeError) as error:
                raise NotPossible(f"{path}, product {number}: {error}") from error


def product_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row as a product. Raises ValueError for a missing id, an unknown column, or a price that is not a number."""
    if unknown := [str(name) for name in row if name not in _FIELDS]:
        raise ValueError(f"unknown column {', '.join(unknown)}; the columns are {', '.join(_FIELDS)}")
    if row.get("product_id") in (None, ""):
        raise ValueError("product_id is missing")
    texts = {name: _text(row.get(name)) for name in ("category", "brand", "name")}
    return {"product_id": str(row["product_id"]), "price": _price(row.get("price")), **texts}


def load(brokers: str, registry_url: str, workspace: str, found: Iterator[dict[str, Any]]) -> int:
    """Publish every product; return their number once the broker has acknowledged all of them.

    Raises: BrokerUnavailable, SchemaMissing, RegistryUnavailable, and what `found` raises.
    """
    feed = ProductFeed(brokers, registry_url, "starling-local")
    count = 0
    for product in found:
        feed.publish(workspace, product["product_id"], product)
        count += 1
    feed.wait()
    return count


def _json_row(line: str) -> Mapping[str, Any]:
    found = json.loads(line)
    if not isinstance(found, dict):
        raise TypeError("not a JSON object")
    return found


def _text(value: object) -> str | None:
    return None if value in (None, "") else str(value)


def _price(value: object) -> float | None:
    if value in (None, ""):
        return None
    price = float(str(value))
    if not isfinite(price):  # Python parses `nan` and `inf` as floats.
        raise ValueError(f"price {value!r} is not a number")
    return price
