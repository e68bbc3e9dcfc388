"""Adapter: sends the history with the published Segment client, like the server of a shop.

The client makes the messages and the requests. Its queue is not used: it puts what the edge refuses for the moment (429, 503)
behind later messages. A purchase that arrives after later ones can change memberships, and the demo compares all of them.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

import requests
from segment.analytics.client import Client
from segment.analytics.request import APIError, post

from starling_common.retries import retrying
from starling_demo.dataset import Purchase
from starling_demo.scenario import EVENT, properties, traits

_BATCH: Final = 100
_RETRY_SECONDS: Final = 120.0
"""How long a batch is sent again that the edge cannot take."""

Message: TypeAlias = Mapping[str, Any]


class LoadFailed(Exception):
    """The edge did not accept a batch. The message states the number of purchases sent, and the reason."""


def send_purchases(
    ingest_url: str,
    write_key: str,
    purchases: Sequence[Purchase],
    sent: Callable[[int], None],
    known: frozenset[str] = frozenset(),
) -> None:
    """Send every purchase in order, and each customer's traits before the first one; return when all are acknowledged.

    Calls `sent` with the number of purchases acknowledged so far. `known`: customers whose traits an earlier call has sent. Message
    ids are derived from the lines of the file, so that a purchase sent twice counts once.
    Raises: LoadFailed.
    """
    client, batch = Client(write_key, send=False), list[Message]()
    introduced, acknowledged = set(known), 0

    def upload() -> None:
        try:
            retrying(_RETRY_SECONDS)(_is_temporary, post, write_key, ingest_url, batch=batch)
        except (APIError, requests.RequestException) as error:
            raise LoadFailed(f"{ingest_url} accepted {acknowledged} purchases, and refused the next ones: {error}") from error

    for count, purchase in enumerate(purchases, 1):
        if purchase.user_id not in introduced:
            introduced.add(purchase.user_id)
            batch.append(_introduction(client, purchase))
        batch.append(_message(client, purchase))
        if len(batch) >= _BATCH or count == len(purchases):
            upload()
            batch.clear()
            acknowledged = count
            sent(count)


def _is_temporary(error: Exception) -> bool:
    return isinstance(error, requests.RequestException) or (
        isinstance(error, APIError) and (error.status == requests.codes.too_many_requests or error.status >= 500)
    )


def _introduction(client: Client, purchase: Purchase) -> Message:
    made: tuple[bool, Message] = client.identify(
        user_id=purchase.user_id,
        traits=traits(purchase.user_id),
        timestamp=datetime.fromtimestamp(purchase.at_ms / 1000, UTC),
        message_id=f"cdnow-{purchase.user_id}",
    )
    return made[1]


def _message(client: Client, purchase: Purchase) -> Message:
    made: tuple[bool, Message] = client.track(
        user_id=purchase.user_id,
        event=EVENT,
        properties=properties(purchase),
        timestamp=datetime.fromtimestamp(purchase.at_ms / 1000, UTC),
        message_id=f"cdnow-{purchase.line}",
    )
    return made[1]
