"""How many ingest items one worker's processor takes a second: decode, fold, state and outputs, without a broker.

python benchmarks/normalizer_fold.py [items] [users]      prints one JSON document
"""

import json
import random
import statistics
import sys
import time

from starling_common.settings import Clock
from starling_items.enrich import Product
from starling_items.work import StageDependencies
from starling_normalizer.agents import Normalizer, NormalizerDependencies, normalizer_service
from starling_normalizer.testing import RECEIVED_MS, key_of, local_codecs, received
from starling_stream.testing import Fed, MemoryTask

UNIT_RECORDS = 1_000
CONTEXT = {
    "library": {"name": "analytics-python", "version": "2.4.0"},
    "ip": "192.0.2.7",
    "locale": "en-GB",
    "app": {"version": "2.1.0"},
}


def items(count: int, users: int) -> list[Fed]:
    """Nine purchases to one identify, in batches as a server-side client sends them."""
    dice, codec = random.Random(7), local_codecs()["ingest.track"]
    feed = []
    for number in range(count):
        kind = "identify" if dice.random() < 0.1 else "track"
        item: dict[str, object] = {
            "type": kind,
            "timestamp": "2026-01-01T00:00:00.000+00:00",
            "context": CONTEXT,
            "integrations": {},
        }
        if kind == "identify":
            item["traits"] = {"plan": dice.choice(["free", "pro"]), "city": "Oslo", "age": dice.randrange(90)}
        else:
            item["event"] = "Order Completed"
            item["properties"] = {"revenue": dice.random() * 100, "quantity": 2, "product_id": f"sku-{dice.randrange(500)}"}
        record = received(
            kind,
            item,
            message_id=f"7f3c9a52-0000-4000-8000-{number:012d}",
            user_id=f"user-{dice.randrange(users)}",
            sent_at="2026-01-01T00:00:00.500+00:00",
            received_at=RECEIVED_MS * 1000 + number * 100,
        )
        feed.append(Fed(f"ingest.{kind}", key_of(record), codec.encode(record), [("traceparent", b"00-" + b"0" * 52)]))
    return feed


def main(count: int, users: int) -> dict[str, object]:
    """Feed everything in units of work; the time is that of the units alone."""
    feed = items(count, users)
    catalog = {("default", f"sku-{number}"): Product("shoes", 42.5, None, "Trail runner") for number in range(500)}
    stage_dependencies = StageDependencies(Clock.WALL, lambda workspace, product_id: catalog.get((workspace, product_id)))
    normalizer = Normalizer(
        local_codecs(), stage_dependencies, NormalizerDependencies(lambda _topic, _outcome: None, lambda: RECEIVED_MS, lambda: None)
    )
    task = MemoryTask(normalizer_service(normalizer, Clock.WALL))
    durations, cpu_began = [], time.process_time()
    for start in range(0, count, UNIT_RECORDS):
        began = time.perf_counter()
        task.feed_all(feed[start : start + UNIT_RECORDS])
        task.take_outputs()
        durations.append(time.perf_counter() - began)
    cpu_seconds = time.process_time() - cpu_began
    return {
        "benchmark": "normalizer_fold",
        "items": count,
        "users": users,
        "seconds": round(sum(durations), 3),
        "items_per_second": round(count / sum(durations)),
        "items_per_cpu_second": round(count / cpu_seconds),
        # What the code can do where other processes want the same cores: the tenth of the units that they disturbed least.
        "items_per_second_of_fastest_tenth": round(UNIT_RECORDS / statistics.quantiles(durations, n=10)[0]),
    }


if __name__ == "__main__":
    print(json.dumps(main(*(int(text) for text in (sys.argv[1:] or ["50000", "5000"])))))
