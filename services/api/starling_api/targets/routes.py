"""Edge: the routes of targets beyond those of every definition: test, disable and enable the targets of feeds."""

import time
import uuid
from typing import Annotated, Any, Final

import anyio.to_thread
from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse

from starling_api.definitions.commands.commands import Commands
from starling_api.definitions.kinds.kinds import TARGETS
from starling_api.definitions.routes import COMMON, lifecycle
from starling_api.http.access.auth import Caller, Role
from starling_api.http.dependencies import Services, UsedServices, at_least, author_of
from starling_api.http.errors import TooManyRequests
from starling_api.http.problems import problems
from starling_api.targets.example import RENDERERS, advice, example_request, refuse_without_test
from starling_api.targets.models import TargetModel, TargetTestModel
from starling_api.webhooks.routes import MOST_WORKSPACES, RATE
from starling_common.http.rate_limits import Buckets
from starling_common.kafka.clusters import TopicUnusable
from starling_common.time.instants import wall_clock_ms

_PATH: Final = "/v1/targets"


def target_routes() -> APIRouter:
    """Return the routes, which need the role admin."""
    router = APIRouter(prefix=_PATH, tags=["targets"], responses=problems(*COMMON, 404, 409, 422))
    _add_switches(router)
    _add_test(router)
    return router


def _add_switches(router: APIRouter) -> None:
    """Add the routes that disable and enable a target."""
    router.add_api_route(
        "/{key}/disable",
        lifecycle(TARGETS, Role.ADMIN, Commands.disable),
        methods=["POST"],
        summary="Disable a target",
        description="A feed gets no further change, and a digest that is not sent yet is dropped. Messages of campaigns to the "
        "target are `FAILED` with the reason `target_disabled`. Audience sync pauses.",
        operation_id="disable_target",
        responses={200: {"model": TargetModel}, **problems(412)},
    )
    router.add_api_route(
        "/{key}/enable",
        lifecycle(TARGETS, Role.ADMIN, Commands.enable),
        methods=["POST"],
        summary="Enable a target again",
        description="An endpoint that answers 410 disables its target, and 404 disables that of a feed. The changes and messages "
        "of the meantime are not sent. Audience sync disables a target whose credentials are refused, or whose audience is gone: "
        "it goes on where it stopped, or begins a first sync if changes have expired.",
        operation_id="enable_target",
        responses={200: {"model": TargetModel}, **problems(412)},
    )


def _add_test(router: APIRouter) -> None:
    tests = Buckets(RATE, MOST_WORKSPACES)

    @router.post(
        "/{key}/test",
        operation_id="test_target",
        summary="Send an example digest, or check the topic of a target",
        responses={200: {"model": TargetTestModel}},
    )
    async def test(
        key: str, request: Request, services: UsedServices, caller: Annotated[Caller, Depends(at_least(Role.ADMIN))]
    ) -> Response:
        """Slack and Teams get a digest with `[Test]` before its title. Of Kafka the call checks that the cluster answers and has
        the topic; it writes no record. Audience sync has no test, which would change the audience. A disabled target is tested too
        and stays disabled. The test has no other effect and is not repeated. A workspace has ten tests at once, then one every five
        seconds.
        """
        now = time.monotonic()
        bucket = tests.of(caller.workspace, now)
        if wait_seconds := bucket.wait(1, now):
            raise TooManyRequests(f"this workspace has tested its targets too often: send the request again in {wait_seconds} s")
        bucket.take(1, now)
        found = await anyio.to_thread.run_sync(services.commands.newest, TARGETS, author_of(request, caller), key)
        refuse_without_test(found)
        document = services.commands.vault.opened(TARGETS, caller.workspace, found.document)
        return JSONResponse(await _tested(services, caller.workspace, document))


async def _tested(services: Services, workspace: str, document: dict[str, Any]) -> dict[str, Any]:
    """Return the result of the test of a target with plain secrets."""
    number = str(uuid.uuid4())
    if document["channel"] not in RENDERERS:
        return await anyio.to_thread.run_sync(_checked, services, document, f"test-{number}")
    answer = await services.webhook_sender.send(workspace, example_request(document, number, wall_clock_ms()))
    if answer.status is not None:
        answer = answer._replace(message=advice(answer.status))
    return {"message_id": f"test-{number}", **answer._asdict()}


def _checked(services: Services, document: dict[str, Any], message_id: str) -> dict[str, Any]:
    """Return the result of the check of a topic."""
    begun = time.monotonic()
    reason = message = answer = None
    try:
        partitions = services.check_topic(document)
        answer = f"the topic {document['topic']} has {partitions} partitions"
    except TopicUnusable as unusable:
        reason, message = unusable.reason, str(unusable)
    return {
        "message_id": message_id,
        "delivered": reason is None,
        "status": None,
        "took_ms": round((time.monotonic() - begun) * 1000),
        "answer": answer,
        "reason": reason,
        "message": message,
    }
