"""Edge: the HTTP application: routers, middleware and the OpenAPI document."""

from collections.abc import Sequence
from typing import Any, Final

from fastapi import APIRouter, FastAPI
from fastapi.middleware.cors import CORSMiddleware

from starling_api.audit.routes import audit_router
from starling_api.backfills.routes import backfill_router
from starling_api.campaigns.routes import campaign_routes, policy_routes
from starling_api.credentials.bodies import TOKEN, WRITE_KEY
from starling_api.credentials.models import (
    IssuedTokenModel,
    IssuedWriteKeyModel,
    TokenModel,
    TokenPageModel,
    WriteKeyModel,
    WriteKeyPageModel,
)
from starling_api.credentials.routes import credential_routes
from starling_api.definitions.kinds.kinds import CAMPAIGNS, EVENT_TYPES, SEGMENTS, TARGETS, TRAITS, VIEWS, WEBHOOKS
from starling_api.definitions.rotation_routes import rotation_routes
from starling_api.definitions.routes import batch_routes, definition_routes, lifecycle_routes, webhook_routes
from starling_api.feed.routes import feed_router
from starling_api.http.access.auth import Role
from starling_api.http.access.rate_limits import RateLimiting
from starling_api.http.dependencies import Services
from starling_api.http.not_implemented import planned_routes
from starling_api.http.openapi.document import openapi_document
from starling_api.http.paths import EncodedSlashes
from starling_api.http.problems import answer_errors
from starling_api.http.system import Checks, system_routes
from starling_api.http.telemetry import Telemetry
from starling_api.imports.routes import import_router
from starling_api.lists.routes import list_router
from starling_api.messages.routes import message_router
from starling_api.outcomes.routes import outcome_router
from starling_api.policy.routes import policy_router
from starling_api.preview.routes import preview_router
from starling_api.reports.routes import report_router
from starling_api.reports.view_routes import view_router
from starling_api.sql.routes import trait_run_router, view_run_router
from starling_api.targets.routes import target_routes
from starling_api.users.export_routes import export_router
from starling_api.users.routes import segment_router, user_router
from starling_api.webhooks.routes import webhook_test_routes
from starling_common.http.rate_limits import EXPOSED
from starling_common.telemetry.metrics import Metrics

_DESCRIPTION: Final = """\
Send `Authorization: Bearer <token>`. A viewer reads. An editor (also called marketer) reads, and writes segments, computed
traits, event types, views, lists and campaigns. An approver reads, and will approve what editors propose, which is not available
yet. An admin may call everything.

Every error is `application/problem+json` with a stable `code` and a `message`. Lists are pages: pass `next_cursor` as `cursor`
until it is null. `as_of` is the stream time that an answer reflects. A write accepts `Idempotency-Key`, which makes it safe to
repeat, and `If-Match` with the ETag of the resource, which prevents lost updates.

A token and its workspace have rate limits, with separate quotas of reads and writes. `RateLimit-Limit`, `RateLimit-Remaining` and
`RateLimit-Reset` report the quota that is nearer to its end. Beyond it the answer is 429 with `Retry-After`.
"""


def build_app(
    services: Services, metrics: Metrics, ready: Checks, cors_origins: Sequence[str] = (), alive: Checks = dict
) -> FastAPI:
    """Return a new application without open connections. `ready`, `alive` return name of a check -> error message, or None.

    `alive` must not block: it is called on the event loop.
    """
    app = FastAPI(
        title="Starling",
        version="1",
        summary="Segments, their members, computed traits, lists, webhooks, and campaigns",
        description=_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.services = services
    routers = _routers(metrics, alive, ready)
    for router in routers:
        app.include_router(router)
    answer_errors(app, [route for router in routers for route in router.routes])
    app.openapi = lambda: _document(app)  # type: ignore[method-assign]  # as FastAPI documents it
    _add_middleware(app, services, metrics, cors_origins)
    return app


def _routers(metrics: Metrics, alive: Checks, ready: Checks) -> Sequence[APIRouter]:
    """Return the routes of every subject."""
    return (
        system_routes(metrics.registry, alive, ready),
        *_definition_routers(),
        segment_router,
        user_router,
        feed_router,
        outcome_router,
        list_router,
        view_router,
        report_router,
        preview_router,
        export_router,
        backfill_router,
        import_router,
        policy_router,
        message_router,
        audit_router,
        *_credential_routers(),
        planned_routes(),
    )


def _definition_routers() -> Sequence[APIRouter]:
    """Return the routes that write definitions, and act on them."""
    return (
        definition_routes(SEGMENTS, "/v1/segments", Role.EDITOR),
        batch_routes(Role.EDITOR),
        lifecycle_routes(SEGMENTS, "/v1/segments", Role.EDITOR),
        definition_routes(TRAITS, "/v1/computed-traits", Role.EDITOR),
        trait_run_router,
        definition_routes(EVENT_TYPES, "/v1/event-types", Role.EDITOR),
        definition_routes(VIEWS, "/v1/views", Role.EDITOR),
        view_run_router,
        # A webhook sends personal data to an external address, so it needs an admin.
        definition_routes(WEBHOOKS, "/v1/webhooks", Role.ADMIN),
        webhook_routes(WEBHOOKS, "/v1/webhooks", Role.ADMIN),
        webhook_test_routes(),
        definition_routes(CAMPAIGNS, "/v1/campaigns", Role.EDITOR),
        campaign_routes(),
        # A target has credentials, and the policy protects every user, so both need an admin.
        definition_routes(TARGETS, "/v1/targets", Role.ADMIN),
        target_routes(),
        rotation_routes(),
        policy_routes(),
    )


def _credential_routers() -> Sequence[APIRouter]:
    token_models = TokenModel, IssuedTokenModel, TokenPageModel
    write_key_models = WriteKeyModel, IssuedWriteKeyModel, WriteKeyPageModel
    return (
        credential_routes(TOKEN, "/v1/tokens", lambda services: services.token_commands, token_models),
        credential_routes(WRITE_KEY, "/v1/write-keys", lambda services: services.write_key_commands, write_key_models),
    )


def _add_middleware(app: FastAPI, services: Services, metrics: Metrics, cors_origins: Sequence[str]) -> None:
    """Wrap the routes, innermost middleware first."""
    app.add_middleware(RateLimiting, limits=services.rate_limits, tokens=services.tokens, metrics=metrics)
    if cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(cors_origins),
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=["ETag", "X-Correlation-Id", *EXPOSED],
        )
    app.add_middleware(EncodedSlashes)
    app.add_middleware(Telemetry, metrics=metrics)


def _document(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        app.openapi_schema = openapi_document(app)
    return app.openapi_schema
