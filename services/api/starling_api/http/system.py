"""Edge: routes of the process itself: health, metrics, and the reference documentation."""

from collections.abc import Callable, Mapping

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from starling_api.http.openapi.reference import front_page, reference_page
from starling_campaigns import campaign_schema
from starling_common.telemetry.health import checks_answer
from starling_segments import json_schema

Checks = Callable[[], Mapping[str, str | None]]


def system_routes(metrics: CollectorRegistry, alive: Checks, ready: Checks) -> APIRouter:
    """Return the routes that need no token. None of them returns data of a workspace."""

    # On the event loop: the threads of the pool may all wait for the database, which a restart would not end.
    async def health() -> Response:
        return _checks(alive())

    router = APIRouter(include_in_schema=False)
    router.add_api_route("/healthz", health, methods=["GET"])
    router.add_api_route("/readyz", lambda: _checks(ready()), methods=["GET"])
    router.add_api_route("/metrics", lambda: Response(generate_latest(metrics), media_type=CONTENT_TYPE_LATEST), methods=["GET"])
    router.add_api_route("/", lambda: HTMLResponse(front_page()), methods=["GET"])
    router.add_api_route("/v1/segment-schema.json", _segment_schema, methods=["GET"])
    router.add_api_route("/v1/campaign-schema.json", _campaign_schema, methods=["GET"])
    router.add_api_route("/docs", _docs, methods=["GET"])
    return router


def _segment_schema() -> Response:
    return JSONResponse(json_schema(), headers={"Cache-Control": "max-age=3600"}, media_type="application/schema+json")


def _campaign_schema() -> Response:
    return JSONResponse(campaign_schema(), headers={"Cache-Control": "max-age=3600"}, media_type="application/schema+json")


def _docs(request: Request) -> Response:
    return HTMLResponse(reference_page(request.app.openapi()))


def _checks(found: Mapping[str, str | None]) -> Response:
    status, content_type, body = checks_answer(found)
    return Response(body, status, media_type=content_type)
