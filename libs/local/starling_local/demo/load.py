"""Adapter: the history through the published Segment client, as a shop's own server would send it."""

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from segment.analytics.client import Client

from starling_local.demo.dataset import Purchase
from starling_local.demo.scenario import EVENT, properties

QUEUE_PAUSE_SECONDS = 0.02


class LoadFailed(Exception):
    """The client could not hand over everything; the message says how many and why."""


def send_purchases(ingest_url: str, write_key: str, purchases: Sequence[Purchase], sent: Callable[[int], None]) -> None:
    """Send every purchase, in order; returns when all are acknowledged. `sent` is told how many were handed over.

    Message ids are made of the file's lines, so that a purchase sent twice counts once.
    Raises: LoadFailed.
    """
    failures: list[str] = []
    client = Client(
        write_key,
        host=ingest_url,
        max_queue_size=5_000,
        upload_size=100,
        upload_interval=0.2,
        on_error=lambda error, items: failures.append(f"{len(items)} items: {error}"),
    )
    for count, purchase in enumerate(purchases, 1):
        _send(client, purchase)
        if count % 1000 == 0:
            sent(count)
    client.flush()
    client.join()
    sent(len(purchases))
    if failures:
        raise LoadFailed(f"{len(failures)} batches were not taken by {ingest_url}; the first: {failures[0]}")


def _send(client: Client, purchase: Purchase) -> None:
    while client.queue.full():
        time.sleep(QUEUE_PAUSE_SECONDS)  # the client would drop the purchase
    taken, _ = client.track(
        user_id=purchase.user_id,
        event=EVENT,
        properties=properties(purchase),
        timestamp=datetime.fromtimestamp(purchase.at_ms / 1000, UTC),
        message_id=f"cdnow-{purchase.line}",
    )
    if not taken:
        raise LoadFailed(f"the Segment client did not take purchase {purchase.line}")
