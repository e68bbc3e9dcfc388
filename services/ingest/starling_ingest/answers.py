"""Pure core: what the edge can answer. Every error is problem+json with the members that tracking clients read."""

from typing import Any, Final

import msgspec

from starling_common.outcome import Refused
from starling_common.problem import PROBLEM_JSON, problem
from starling_ingest.accept import Fault

HeaderList = list[tuple[str, str]]

_CORS: Final = ("access-control-allow-origin", "*")
_EXPOSED: Final = ("access-control-expose-headers", "X-Correlation-Id, Retry-After")
_HEADERS: Final = "Authorization, Content-Type, Content-Encoding, X-Retry-Count, X-Write-Key, X-Correlation-Id, Traceparent"
_JSON: Final = ("content-type", "application/json")
_PROBLEM: Final = ("content-type", PROBLEM_JSON)
_STATUS: Final = {"body_too_large": 413, "too_many_items": 413, "unknown_write_key": 401, "not_yet": 501}
_encode = msgspec.json.Encoder().encode


class Answer(msgspec.Struct, frozen=True):
    """One HTTP answer."""

    status: int
    headers: HeaderList
    body: bytes


def accepted(correlation_id: str) -> Answer:
    """Every item is in. The id was checked or made here: it needs no escaping."""
    body = f'{{"success":true,"correlationId":"{correlation_id}"}}'.encode()
    return Answer(200, [_JSON, _CORS, _EXPOSED, ("x-correlation-id", correlation_id)], body)


def partly_accepted(count: int, faults: list[Fault], correlation_id: str) -> Answer:
    """`count` items are in, the faulty ones are dead letters."""
    body = _encode({"success": False, "accepted": count, "rejected": _rejected(faults)})
    return Answer(200, [_JSON, _CORS, _EXPOSED, ("x-correlation-id", correlation_id)], body)


def nothing_usable(faults: list[Fault], correlation_id: str) -> Answer:
    """No item is in. A lone item's own code and words; a batch's say where to look."""
    first = faults[0]
    if len(faults) == 1:
        return failed(400, first.code, first.message, correlation_id, accepted=0, rejected=_rejected(faults))
    message = f"none of {len(faults)} items can be used, the first because: {first.message}"
    return failed(400, "no_usable_item", message, correlation_id, accepted=0, rejected=_rejected(faults))


def refused(why: Refused, correlation_id: str) -> Answer:
    """Nothing of the body can be read."""
    return failed(_STATUS.get(why.code, 400), why.code, why.message, correlation_id)


def try_later(status: int, code: str, message: str, after_seconds: int, correlation_id: str) -> Answer:
    """429 or 503: the same request, with the same message ids, may be sent again."""
    answer = failed(status, code, message, correlation_id)
    return Answer(status, [*answer.headers, ("retry-after", str(after_seconds))], answer.body)


def failed(status: int, code: str, message: str, correlation_id: str, **more: Any) -> Answer:
    """Any other error."""
    headers = [_PROBLEM, _CORS, _EXPOSED, ("x-correlation-id", correlation_id)]
    return Answer(status, headers, _encode(problem(status, code, message, **more)))


def wrong_method(allow: str, correlation_id: str) -> Answer:
    """405, and what would be right."""
    answer = failed(405, "wrong_method", f"this path takes {allow}", correlation_id)
    return Answer(405, [*answer.headers, ("allow", allow)], answer.body)


def preflight(allow: str, asked: str | None) -> Answer:
    """The answer to a browser that asks whether it may send to another origin; every header name that it asks for is allowed.

    No request carries cookies that count here, so a header can do no harm; clients add names of their own with every version.
    """
    headers = [
        _CORS,
        ("access-control-allow-methods", allow),
        ("access-control-allow-headers", asked or _HEADERS),
        ("access-control-max-age", "86400"),
        ("vary", "Access-Control-Request-Headers"),
        ("allow", allow),
    ]
    return Answer(204, headers, b"")


def browser_settings(write_key: str, api_host: str, scheme: str) -> Answer:
    """The document that Segment's browser client fetches before it sends anything."""
    segment = {"apiKey": write_key, "apiHost": api_host, "protocol": scheme}
    # Without a host of its own, the client sends its metrics to Segment.
    settings = {"integrations": {"Segment.io": segment}, "plan": {}, "edgeFunction": {}, "metrics": {"host": api_host}}
    return _document(settings)


def source_config(write_key: str) -> Answer:
    """The document that RudderStack's browser client fetches first: no device destinations, no reports of its own."""
    off = {"enabled": False}
    config = {"statsCollection": {"errors": off, "metrics": off}}
    source = {"id": write_key, "name": "starling", "enabled": True, "config": config, "destinations": []}
    return _document({"source": source})


def plain(status: int, content_type: str, body: bytes) -> Answer:
    """Health and metrics."""
    return Answer(status, [("content-type", content_type)], body)


def _rejected(faults: list[Fault]) -> list[dict[str, Any]]:
    return [{"index": f.index, "messageId": f.message_id, "code": f.code, "message": f.message} for f in faults]


def _document(value: dict[str, Any]) -> Answer:
    return Answer(200, [_JSON, _CORS, _EXPOSED, ("cache-control", "public, max-age=300")], _encode(value))
