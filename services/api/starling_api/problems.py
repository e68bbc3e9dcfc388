"""Edge: every error as `application/problem+json`. The one table from what can go wrong to its HTTP status."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from starling_api import errors
from starling_common.cassandra import DatabaseUnavailable
from starling_common.kafka import BrokerUnavailable
from starling_common.logs import log
from starling_common.problem import PROBLEM_JSON, problem
from starling_common.wire import RegistryUnavailable, SchemaMissing
from starling_segments import DefinitionRefused

_STATUS: Final[Mapping[type[errors.ApiError], int]] = {
    errors.BadRequest: 400,
    errors.Unauthenticated: 401,
    errors.Forbidden: 403,
    errors.NotFound: 404,
    errors.Archived: 409,
    errors.InUse: 409,
    errors.BackfillEnded: 409,
    errors.CursorExpired: 410,
    errors.VersionConflict: 412,
    errors.TooLarge: 413,
    errors.IdempotencyKeyReused: 422,
    errors.NotYet: 501,
    errors.AtWork: 503,
    errors.TooManyStreams: 503,
    errors.NotTakenOver: 503,
}
_HEADERS: Final[Mapping[int, Mapping[str, str]]] = {401: {"WWW-Authenticate": "Bearer"}, 503: {"Retry-After": "1"}}
_CODES: Final = {404: "not_found", 405: "method_not_allowed"}
_AWAY: Final = (DatabaseUnavailable, BrokerUnavailable, RegistryUnavailable, SchemaMissing)


def answer_errors(app: FastAPI) -> None:
    """Register all of it."""
    app.add_exception_handler(errors.ApiError, _api_error)
    app.add_exception_handler(DefinitionRefused, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    for kind in _AWAY:
        app.add_exception_handler(kind, _away)


def problem_response(status: int, code: str, message: str, **more: Any) -> JSONResponse:
    """One error answer."""
    body = problem(status, code, message, **more)
    return JSONResponse(body, status, headers=dict(_HEADERS.get(status, {})), media_type=PROBLEM_JSON)


def _api_error(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, errors.ApiError)  # noqa: S101 - registered for nothing else
    more: dict[str, Any] = {}
    if isinstance(error, errors.InUse):
        more = {"used_by": list(error.users)}
    if isinstance(error, errors.VersionConflict):
        more = {"version": error.version}
    return problem_response(_STATUS[type(error)], error.code, str(error), **more)


def _refused(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, DefinitionRefused)  # noqa: S101 - registered for nothing else
    faults = [asdict(fault) for fault in error.faults]
    if error.not_yet:
        return problem_response(501, "not_yet", f"this part of the language is not built yet: {error}", errors=faults)
    return problem_response(422, "invalid_definition", str(error), errors=faults)


def _invalid(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for nothing else
    faults = [
        {"pointer": "/".join(map(str, fault["loc"])), "code": "bad_parameter", "message": fault["msg"], "expected": fault["msg"]}
        for fault in error.errors()
    ]
    return problem_response(400, "bad_parameter", "; ".join(f"{one['pointer']}: {one['message']}" for one in faults), errors=faults)


def _http(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for nothing else
    answer = problem_response(error.status_code, _CODES.get(error.status_code, "http_error"), str(error.detail))
    answer.headers.update(error.headers or {})
    return answer


def _away(_request: Request, error: Exception) -> JSONResponse:
    log(__name__).warning("store_away", error=str(error))
    return problem_response(503, "unavailable", f"a store is away, the same request may work later: {error}")
