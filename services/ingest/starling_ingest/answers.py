"""Pure core: the HTTP responses of the service. Every error is problem+json with the members that tracking clients read."""

from typing import Any, Final

import msgspec

from starling_common.http.problem import PROBLEM_JSON, problem
from starling_common.http.rate_limits import EXPOSED, RETRY_AFTER, Quota
from starling_common.outcome import Refused
from starling_ingest.requests.accept import Rejection

HeaderList = list[tuple[str, str]]

_CORS: Final = ("access-control-allow-origin", "*")
_EXPOSED: Final = ("access-control-expose-headers", ", ".join(("X-Correlation-Id", *EXPOSED)))
_HEADERS: Final = "Authorization, Content-Type, Content-Encoding, X-Retry-Count, X-Write-Key, X-Correlation-Id, Traceparent"
_JSON: Final = ("content-type", "application/json")
_PROBLEM: Final = ("content-type", PROBLEM_JSON)
_STATUS: Final = {"body_too_large": 413, "too_many_items": 413, "unknown_write_key": 401, "scope_missing": 403, "not_yet": 501}
_encode = msgspec.json.Encoder().encode


class Answer(msgspec.Struct, frozen=True):
    """One HTTP response."""

    status: int
    headers: HeaderList
    body: bytes
    retry_after: str | None = None


def accepted(correlation_id: str) -> Answer:
    """Return 200 for a request whose items are all acknowledged. The correlation id is validated, so it needs no escaping."""
    body = f'{{"success":true,"correlationId":"{correlation_id}"}}'.encode()
    return Answer(200, [_JSON, _CORS, _EXPOSED, ("x-correlation-id", correlation_id)], body)


def partly_accepted(count: int, rejections: list[Rejection], correlation_id: str) -> Answer:
    """Return 200 with `success: false`: `count` items are acknowledged, and each rejected item is a dead letter."""
    body = _encode({"success": False, "accepted": count, "rejected": _rejected(rejections)})
    return Answer(200, [_JSON, _CORS, _EXPOSED, ("x-correlation-id", correlation_id)], body)


def none_accepted(rejections: list[Rejection], correlation_id: str) -> Answer:
    """Return 400 for a request without a valid item: the error of the only item, or a summary of several."""
    first = rejections[0]
    if len(rejections) == 1:
        return failed(400, first.code, first.message, correlation_id, accepted=0, rejected=_rejected(rejections))
    message = f"none of the {len(rejections)} items is valid; the first error is {first.message}"
    return failed(400, "no_usable_item", message, correlation_id, accepted=0, rejected=_rejected(rejections))


def refused(why: Refused, correlation_id: str) -> Answer:
    """Return the error of a body that is refused whole."""
    return failed(_STATUS.get(why.code, 400), why.code, why.message, correlation_id)


def try_later(status: int, code: str, message: str, after_seconds: int, correlation_id: str) -> Answer:
    """Return 429 or 503 with `Retry-After`: the sender may repeat the request with the same message ids."""
    answer = failed(status, code, message, correlation_id)
    retry_after = str(after_seconds)
    return Answer(status, [*answer.headers, (RETRY_AFTER, retry_after)], answer.body, retry_after)


def with_quota(answer: Answer, quota: Quota) -> Answer:
    """Return the response with the `RateLimit` fields."""
    return Answer(answer.status, answer.headers + quota.fields(answer.retry_after), answer.body, answer.retry_after)


def body_timeout(correlation_id: str) -> Answer:
    """Return 408 and close the connection: the rest of the body is unread, so the connection cannot carry another request."""
    answer = failed(408, "body_timeout", "the body took too long: send it faster, or in smaller requests", correlation_id)
    return Answer(408, [*answer.headers, ("connection", "close")], answer.body)


def failed(status: int, code: str, message: str, correlation_id: str, **more: Any) -> Answer:
    """Return an error as problem+json; `more` are additional members."""
    headers = [_PROBLEM, _CORS, _EXPOSED, ("x-correlation-id", correlation_id)]
    return Answer(status, headers, _encode(problem(status, code, message, **more)))


def wrong_method(allow: str, correlation_id: str) -> Answer:
    """Return 405 with the methods that the path allows."""
    answer = failed(405, "wrong_method", f"this path allows {allow}", correlation_id)
    return Answer(405, [*answer.headers, ("allow", allow)], answer.body)


def preflight(allow: str, requested: str | None) -> Answer:
    """Return the response to a CORS preflight, which allows every header name requested.

    Cookies have no effect on this service, so no header is a risk; new client versions add header names.
    """
    headers = [
        _CORS,
        ("access-control-allow-methods", allow),
        ("access-control-allow-headers", requested or _HEADERS),
        ("access-control-max-age", "86400"),
        ("vary", "Access-Control-Request-Headers"),
        ("allow", allow),
    ]
    return Answer(204, headers, b"")


def browser_settings(write_key: str, api_host: str, scheme: str) -> Answer:
    """Return the settings document that Segment's browser client fetches before it sends events."""
    segment = {"apiKey": write_key, "apiHost": api_host, "protocol": scheme}
    # Without this host the client sends its metrics to Segment.
    settings = {"integrations": {"Segment.io": segment}, "plan": {}, "edgeFunction": {}, "metrics": {"host": api_host}}
    return _document(settings)


def source_config(write_key: str) -> Answer:
    """Return the document that RudderStack's browser client fetches first: no device destinations, no client reports."""
    off = {"enabled": False}
    config = {"statsCollection": {"errors": off, "metrics": off}}
    source = {"id": write_key, "name": "starling", "enabled": True, "config": config, "destinations": []}
    return _document({"source": source})


def plain(status: int, content_type: str, body: bytes) -> Answer:
    """Return a response of health or metrics."""
    return Answer(status, [("content-type", content_type)], body)


def _rejected(rejections: list[Rejection]) -> list[dict[str, Any]]:
    return [{"index": r.index, "messageId": r.message_id, "code": r.code, "message": r.message} for r in rejections]


def _document(value: dict[str, Any]) -> Answer:
    return Answer(200, [_JSON, _CORS, _EXPOSED, ("cache-control", "public, max-age=300")], _encode(value))
