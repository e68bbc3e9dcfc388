"""Pure core: batches, which are requests with several membership changes of one target, and what a failure of one means."""

import json
from collections.abc import Sequence
from typing import Any, Final

from starling_common.values import deterministic_id
from starling_delivery.channel import Again, Answer, Message
from starling_delivery.policy import Request

_CALLS: Final = ('{"type":"track"', '{"type":"identify"')
"""How the bodies of calls of the Segment specification begin."""

_MOST_BYTES: Final = 1_048_576
_MOST_BYTES_OF_CALLS: Final = 500_000
"""The limit of a batch in the Segment specification."""

_ENVELOPE_BYTES: Final = 100

_TRANSIENT: Final = frozenset({408, 425, 429})
"""The client errors that do not depend on the content of a request."""

_FEWER: Final = 4


def is_call(payload: str) -> bool:
    """Return whether the body of a single request is a call of the Segment specification."""
    return payload.startswith(_CALLS)


def most_bytes(payload: str) -> int:
    """Return the limit of the bodies, each with its comma, in a batch of such bodies."""
    return (_MOST_BYTES_OF_CALLS if is_call(payload) else _MOST_BYTES) - _ENVELOPE_BYTES


def batch_message(requests: Sequence[Request]) -> Message:
    """Return one message with the bodies of all requests, which have the same target, address and kind of body.

    Its body is `{"type": "segment.changes", "timestamp", "data": [bodies]}`, with the latest timestamp of the bodies, or
    `{"batch": [bodies]}` for calls of the Segment specification. The same requests in the same order have the same id and body.
    """
    first, payloads = requests[0], [request["payload"] for request in requests]
    bodies = ",".join(payloads)
    if is_call(first["payload"]):
        body = f'{{"batch":[{bodies}]}}'
    else:
        timestamp = max(json.loads(payload)["timestamp"] for payload in payloads)
        body = f'{{"type":"segment.changes","timestamp":{json.dumps(timestamp)},"data":[{bodies}]}}'
    number = deterministic_id("batch", *(request["delivery_id"] for request in requests))
    return Message(
        workspace=first["workspace"],
        user_id="",
        delivery_id=number,
        message_id=number,
        target_key=first["target_key"],
        address=first["address"],
        payload=body,
        attempt=max(request["attempt"] for request in requests),
    )


def is_refusal(answer: Answer) -> bool:
    """Return whether the receiver may have refused one of the changes, rather than any request."""
    if not isinstance(answer, Again):
        return False
    status = answer.status_code or 0
    return 400 <= status < 500 and status not in _TRANSIENT


def after_batch(request: Request, answer: Answer, size: int) -> Request:
    """Return the request as it is retried after a batch of that size.

    After a failure its next batch is a quarter as large, so that one change with which each batch fails is alone after at most
    four attempts. A batch that came too early stays whole.
    """
    if not isinstance(answer, Again) or answer.status_code in _TRANSIENT:
        return request
    return limited(request, 1 if is_refusal(answer) else max(1, size // _FEWER))


def limited(request: Request, most: int) -> dict[str, Any]:
    """Return the request with at most so many changes in its next batch."""
    return {**request, "batch_limit": min(most, request.get("batch_limit") or most)}
