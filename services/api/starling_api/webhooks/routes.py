"""Edge: the route of the test call."""

import time
import uuid
from typing import Annotated, Final

import anyio.to_thread
from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse

from starling_api.definitions.kinds.kinds import WEBHOOKS
from starling_api.definitions.routes import COMMON
from starling_api.http.access.auth import Caller, Role
from starling_api.http.dependencies import UsedServices, at_least, author_of
from starling_api.http.errors import TooManyRequests
from starling_api.http.problems import problems
from starling_api.webhooks.example import example_request
from starling_api.webhooks.models import WebhookTestModel
from starling_common.http.rate_limits import Buckets, Rate
from starling_common.time.instants import wall_clock_ms

RATE: Final = Rate(per_second=0.2, burst=10)
"""The tests of one workspace in one process."""
MOST_WORKSPACES: Final = 10_000


def webhook_test_routes() -> APIRouter:
    """Return the route that tests a webhook."""
    router = APIRouter(prefix="/v1/webhooks", tags=["webhooks"])
    tests = Buckets(RATE, MOST_WORKSPACES)

    @router.post(
        "/{key}/test",
        operation_id="test_webhook",
        summary="Send an example change to a webhook",
        responses={200: {"model": WebhookTestModel}, **problems(*COMMON, 404, 409)},
    )
    async def test(
        key: str, request: Request, services: UsedServices, caller: Annotated[Caller, Depends(at_least(Role.ADMIN))]
    ) -> Response:
        """The request is signed and has the form, the headers and the format of a change. It is marked as a test: its `type` is
        `webhook.test`, or its event `Webhook Test`. A disabled webhook is tested too and stays disabled. The test has no other
        effect and is not repeated. A workspace has ten tests at once, then one every five seconds.
        """
        now = time.monotonic()
        bucket = tests.of(caller.workspace, now)
        if wait_seconds := bucket.wait(1, now):
            raise TooManyRequests(f"this workspace has tested its webhooks too often: send the request again in {wait_seconds} s")
        bucket.take(1, now)
        found = await anyio.to_thread.run_sync(services.commands.newest, WEBHOOKS, author_of(request, caller), key)
        document = services.commands.vault.opened(WEBHOOKS, caller.workspace, found.document)
        example = example_request(caller.workspace, document, str(uuid.uuid4()), wall_clock_ms())
        answer = await services.webhook_sender.send(caller.workspace, example)
        return JSONResponse({"message_id": example.message_id, **answer._asdict()})

    return router
