"""Adapter: sends the history through the published Segment client, like the server of a shop."""

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from segment.analytics.client import Client

from starling_demo.dataset import Purchase
from starling_demo.scenario import EVENT, properties, traits

QUEUE_PAUSE_SECONDS = 0.02


class LoadFailed(Exception):
    """The client could not send all purchases. The message states the number and the reason."""


def send_purchases(
    ingest_url: str,
    write_key: str,
    purchases: Sequence[Purchase],
    sent: Callable[[int], None],
    known: frozenset[str] = frozenset(),
) -> None:
    """Send every purchase in order, and each customer's traits before the first one; return when all are acknowledged.

    Calls `sent` with the number of purchases queued so far. `known`: customers whose traits an earlier call has sent. Message ids
    are derived from the lines of the file, so that a purchase sent twice counts once.
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
    introduced = set(known)
    for count, purchase in enumerate(purchases, 1):
        if purchase.user_id not in introduced:
            introduced.add(purchase.user_id)
            _introduce(client, purchase)
        _send(client, purchase)
        if count % 1000 == 0:
            sent(count)
    client.flush()
    client.join()
    sent(len(purchases))
    if failures:
        raise LoadFailed(f"{ingest_url} did not accept {len(failures)} batches; the first: {failures[0]}")


def _introduce(client: Client, purchase: Purchase) -> None:
    _wait_for_space(client)
    taken, _ = client.identify(
        user_id=purchase.user_id,
        traits=traits(purchase.user_id),
        timestamp=datetime.fromtimestamp(purchase.at_ms / 1000, UTC),
        message_id=f"cdnow-{purchase.user_id}",
    )
    if not taken:
        raise LoadFailed(f"the Segment client did not queue the traits of {purchase.user_id}")


def _send(client: Client, purchase: Purchase) -> None:
    _wait_for_space(client)
    taken, _ = client.track(
        user_id=purchase.user_id,
        event=EVENT,
        properties=properties(purchase),
        timestamp=datetime.fromtimestamp(purchase.at_ms / 1000, UTC),
        message_id=f"cdnow-{purchase.line}",
    )
    if not taken:
        raise LoadFailed(f"the Segment client did not queue purchase {purchase.line}")


def _wait_for_space(client: Client) -> None:
    while client.queue.full():
        time.sleep(QUEUE_PAUSE_SECONDS)  # A full queue drops what is added.
