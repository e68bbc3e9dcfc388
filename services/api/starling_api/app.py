"""Edge: the HTTP app. Knows HTTP and nothing else."""

from collections.abc import Callable, Mapping, Sequence

from fastapi import FastAPI
from fastapi.middleware.cors import CORSMiddleware

from starling_api.kinds import SEGMENTS, TRAITS, WEBHOOKS
from starling_api.problems import answer_errors
from starling_api.requests import Services
from starling_api.routes.about import about_routes
from starling_api.routes.audience import profile_router, segment_router, user_router
from starling_api.routes.backfills import backfill_router
from starling_api.routes.definitions import definition_routes, lifecycle_routes
from starling_api.routes.exports import export_router
from starling_api.routes.feed import feed_router
from starling_api.routes.later import later_routes
from starling_api.routes.lists import list_router
from starling_api.routes.materialised import materialised_router
from starling_api.routes.reports import report_router
from starling_api.routes.trials import trial_router
from starling_api.telemetry import Telemetry
from starling_api.tokens import Role
from starling_common.metrics import Metrics


def build_app(
    services: Services, metrics: Metrics, ready: Callable[[], Mapping[str, str | None]], cors_origins: Sequence[str] = ()
) -> FastAPI:
    """One app per call; nothing is opened. `ready`: name of a check -> what is wrong, or None."""
    app = FastAPI(
        title="Starling",
        version="1",
        summary="Segments, their members, computed traits and webhooks",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.services = services
    routers = (
        about_routes(metrics.registry, ready),
        definition_routes(SEGMENTS, "/v1/segments", Role.MARKETER),
        lifecycle_routes(SEGMENTS, "/v1/segments", Role.MARKETER),
        definition_routes(TRAITS, "/v1/computed-traits", Role.MARKETER),
        # A webhook sends what is known about people to an address: not a marketer's decision.
        definition_routes(WEBHOOKS, "/v1/webhooks", Role.ADMIN),
        segment_router,
        user_router,
        feed_router,
        list_router,
        materialised_router,
        report_router,
        trial_router,
        export_router,
        backfill_router,
        later_routes(),
        profile_router,
    )
    for router in routers:
        app.include_router(router)
    answer_errors(app)
    if cors_origins:
        app.add_middleware(
            CORSMiddleware, allow_origins=list(cors_origins), allow_methods=["*"], allow_headers=["*"], expose_headers=["ETag"]
        )
    app.add_middleware(Telemetry, metrics=metrics)
    return app
