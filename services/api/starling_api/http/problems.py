"""Edge: every error as `application/problem+json`. The one table from what can go wrong to its HTTP status."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final, NamedTuple

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Match, Route

from starling_api.http import errors
from starling_common.cassandra.sessions import DatabaseUnavailable
from starling_common.http.problem import PROBLEM_JSON, problem
from starling_common.kafka.clients import BrokerUnavailable
from starling_common.telemetry.logs import log
from starling_common.wire import RegistryUnavailable, SchemaMissing
from starling_segments import DefinitionRefused

_STATUS: Final[Mapping[type[errors.ApiError], int]] = {
    errors.BadRequest: 400,
    errors.BadImport: 400,
    errors.ReadOnly: 400,
    errors.Unauthenticated: 401,
    errors.Forbidden: 403,
    errors.NotFound: 404,
    errors.Archived: 409,
    errors.InUse: 409,
    errors.CredentialEnded: 409,
    errors.FrozenField: 409,
    errors.NotActivated: 409,
    errors.BackfillEnded: 409,
    errors.HistoryOff: 409,
    errors.ImportEnded: 409,
    errors.ImportExists: 409,
    errors.ImportRunning: 409,
    errors.BodyTimeout: 408,
    errors.CursorExpired: 410,
    errors.VersionConflict: 412,
    errors.TooLarge: 413,
    errors.IdempotencyKeyReused: 422,
    errors.TooManyRequests: 429,
    errors.NotAvailable: 501,
    errors.ResourceBusy: 503,
    errors.MessengerBehind: 503,
    errors.SecretsKeyMissing: 503,
    errors.SecretUnreadable: 503,
    errors.TokensUnknown: 503,
    errors.TooManyStreams: 503,
    errors.SegmentBackfilling: 503,
}
_HEADERS: Final[Mapping[int, Mapping[str, str]]] = {
    401: {"WWW-Authenticate": "Bearer"},
    408: {"Connection": "close"},
    429: {"Retry-After": "1"},
    503: {"Retry-After": "1"},
}
_VERBS: Final = ("GET", "PUT", "POST", "DELETE")


class Problem(NamedTuple):
    """One error status in the OpenAPI document: the name of its component, its description, and an example."""

    component: str
    description: str
    code: str
    message: str


PROBLEMS: Final[Mapping[int, Problem]] = {
    400: Problem(
        "BadRequest", "The request is malformed: a parameter, a header, a cursor, or a body that is not JSON",
        "bad_parameter", "query/limit: Input should be less than or equal to 1000",
    ),
    401: Problem(
        "NoToken", "The token is missing or unknown",
        "unauthorized", "send `Authorization: Bearer <token>` with a token of this installation",
    ),
    403: Problem(
        "Forbidden", "The role of the token does not allow this",
        "forbidden", "the call needs the role admin; the token's role is viewer",
    ),
    404: Problem("NotFound", "There is no such resource", "unknown_segment", "there is no segment 'vip' in this workspace"),
    408: Problem(
        "Timeout", "The body did not arrive in time",
        "body_timeout", "the body took over 30 seconds: send it faster, or in parts",
    ),
    409: Problem(
        "Conflict", "The state of the resource does not allow this: it is archived, revoked, in use, active, or finished",
        "in_use", "'vip' is used by loyal: change or archive these first",
    ),
    410: Problem(
        "Gone", "The records after the cursor have been deleted",
        "cursor_expired", "the records after this cursor have been deleted: read the members, then the feed without a cursor",
    ),
    412: Problem(
        "Precondition", "If-Match is not the current revision: another request changed the resource first",
        "version_conflict", "'vip' is at revision 1772357400000000: read it again and repeat the change",
    ),
    413: Problem("TooLarge", "The body is too large", "too_large", "a body has at most 1048576 bytes"),
    422: Problem(
        "Invalid", "The body is invalid; `errors` lists every error",
        "invalid_definition", "/where/op: there is no operator 'like'",
    ),
    429: Problem(
        "TooManyRequests", "The token or its workspace is over a rate limit, or has too many expensive requests at the same time",
        "rate_limited", "this token is over its rate limit of reads: send the request again after Retry-After",
    ),
    500: Problem("Internal", "The server failed", "internal_error", "internal error; correlation id c-1"),
    501: Problem("NotYet", "This is not available yet", "not_yet", "DELETE /v1/users/{id} is not available yet"),
    503: Problem(
        "Unavailable", "A store is unreachable, or the resource is busy; the same request can succeed later",
        "unavailable", "a store is unreachable, retry later: no node answers",
    ),
}  # fmt: skip
"""Every error status of an operation."""


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the `responses` of a route with these error statuses. `openapi/document.py` replaces them by components.

    A body that can be too large (413) can be too slow as well (408).
    """
    if 413 in statuses:
        statuses = (408, *statuses)
    return {status: {"description": PROBLEMS[status].description} for status in statuses}


_STORE_ERRORS: Final = (DatabaseUnavailable, BrokerUnavailable, RegistryUnavailable, SchemaMissing)


def answer_errors(app: FastAPI, routes: Sequence[BaseRoute]) -> None:
    """Register the error handlers. `routes`: the routes of all routers, from which `Allow` is derived."""
    app.add_exception_handler(errors.ApiError, _api_error)
    app.add_exception_handler(DefinitionRefused, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http_error(routes))
    for kind in _STORE_ERRORS:
        app.add_exception_handler(kind, _unavailable)


def problem_response(status: int, code: str, message: str, **more: Any) -> JSONResponse:
    """Return one error response."""
    body = problem(status, code, message, **more)
    return JSONResponse(body, status, headers=dict(_HEADERS.get(status, {})), media_type=PROBLEM_JSON)


def _api_error(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, errors.ApiError)  # noqa: S101 - registered for nothing else
    more: dict[str, Any] = {}
    if isinstance(error, errors.InUse):
        more = {"used_by": list(error.users)}
    if isinstance(error, errors.VersionConflict):
        more = {"revision": error.revision}
    if isinstance(error, errors.BadImport | errors.ReadOnly | errors.FrozenField):
        more = {"errors": [asdict(one) for one in error.errors]}
    return problem_response(_STATUS[type(error)], error.code, str(error), **more)


def _refused(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, DefinitionRefused)  # noqa: S101 - registered for nothing else
    errors_found = [asdict(fault) for fault in error.errors]
    if error.not_yet:
        return problem_response(501, "not_yet", f"this is not available yet: {error}", errors=errors_found)
    return problem_response(422, "invalid_definition", str(error), errors=errors_found)


def _invalid(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for nothing else
    invalid = [
        {"pointer": "/".join(map(str, one["loc"])), "code": "bad_parameter", "message": one["msg"], "expected": one["msg"]}
        for one in error.errors()
    ]
    return problem_response(
        400, "bad_parameter", "; ".join(f"{one['pointer']}: {one['message']}" for one in invalid), errors=invalid
    )


def _http_error(routes: Sequence[BaseRoute]) -> Callable[[Request, Exception], JSONResponse]:
    def answer(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)  # noqa: S101 - registered for nothing else
        path = request.scope["path"]
        if error.status_code == 404:
            return problem_response(404, "not_found", f"there is no resource {path}: see /docs")
        if error.status_code == 405:
            allowed = _methods(routes, request)
            message = f"{request.method} is not allowed for {path}: use {' or '.join(allowed)}"
            refused = problem_response(405, "method_not_allowed", message)
            refused.headers["Allow"] = ", ".join(allowed)
            return refused
        refused = problem_response(error.status_code, "http_error", str(error.detail))
        refused.headers.update(error.headers or {})
        return refused

    return answer


def _methods(routes: Sequence[BaseRoute], request: Request) -> list[str]:
    """Return the methods of all routes that match the path. A single route has only its own method."""
    found: set[str] = set()
    for route in routes:
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE:
            found |= route.methods or set()
    return [verb for verb in _VERBS if verb in found]


def _unavailable(_request: Request, error: Exception) -> JSONResponse:
    log(__name__).warning("store_unavailable", error=str(error))
    return problem_response(503, "unavailable", f"a store is unreachable, retry later: {error}")
