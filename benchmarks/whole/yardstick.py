"""The speed of this machine: the CPU time of a fixed piece of work, so that results of two machines can be compared."""

import json
import time
from typing import Any, Final

_ROUNDS: Final = 9
_REPEATS: Final = 2_000
_DOCUMENT: Final[dict[str, Any]] = {
    "type": "track",
    "userId": "user-123456",
    "event": "Order Completed",
    "properties": {
        "total": 99.5,
        "currency": "EUR",
        "products": [{"id": f"p-{number}", "price": number * 1.5} for number in range(8)],
    },
}


def yardstick_micros() -> float:
    """Return the CPU-µs of one round of writing, reading and walking a small document: the least of several measurements."""
    return min(_measured() for _ in range(_ROUNDS))


def _measured() -> float:
    began = time.process_time()
    total = 0.0
    for _ in range(_REPEATS):
        read = json.loads(json.dumps(_DOCUMENT))
        total += sum(product["price"] for product in read["properties"]["products"])
    assert total > 0
    return (time.process_time() - began) * 1e6 / _REPEATS
