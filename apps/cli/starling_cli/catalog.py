"""Adapter: publishes products to `catalog.products`; the normalizer joins them into events."""

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, Producer

from starling_common.headers import record_headers
from starling_common.kafka.clients import BrokerUnavailable, producer_config
from starling_common.kafka.topics import PRODUCTS
from starling_common.time.instants import wall_clock_ms
from starling_common.values import record_key
from starling_common.wire import Registry
from starling_local.errors import NotPossible

_FIELDS = ("product_id", "category", "price", "brand", "name")
_FLUSH_TIMEOUT_SECONDS = 60.0


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
    codec = Registry(registry_url).codec(PRODUCTS, "ProductListed")
    producer = Producer(producer_config(brokers))
    failures: list[KafkaError] = []
    count = 0
    for product in found:
        value = codec.encode({"workspace": workspace, "listed_at": wall_clock_ms(), **product})
        _produce(producer, record_key(workspace, product["product_id"]), value, failures.append)
        count += 1
    if producer.flush(_FLUSH_TIMEOUT_SECONDS) or failures:
        raise BrokerUnavailable(f"{PRODUCTS}: {failures[0].str() if failures else 'the broker did not acknowledge in time'}")
    return count


def _produce(producer: Producer, key: bytes, value: bytes, failed: Callable[[KafkaError], None]) -> None:
    def delivered(error: KafkaError | None, _message: object) -> None:
        if error is not None:
            failed(error)

    headers = record_headers(key.decode(), "starling-local")
    while True:
        try:
            producer.produce(PRODUCTS, value, key, headers=headers, on_delivery=delivered)
        except BufferError:  # The local queue is full: poll until the broker acknowledges some.
            producer.poll(0.5)
        else:
            producer.poll(0)
            return


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
