"""Edge: the routes of campaigns beyond those of every definition, and of the policy of a workspace."""

from collections.abc import Callable
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Query, Response
from fastapi.responses import JSONResponse

from starling_api.campaigns.models import CampaignPreviewModel, CampaignReportModel, DryRunModel, TestMessagesModel
from starling_api.campaigns.preview import MAX_COUNTED, Reads, RequestedPreview, dry_run, previewed, requested_preview
from starling_api.campaigns.samples import requested_test, test_requests
from starling_api.definitions.kinds.kinds import CAMPAIGNS, POLICIES
from starling_api.definitions.models import MODELS, VersionPageModel
from starling_api.definitions.repository import to_json
from starling_api.definitions.routes import COMMON, answered, commands_for, etag
from starling_api.http.access.auth import Role
from starling_api.http.dependencies import (
    Body,
    Page,
    UsedServices,
    Viewer,
    Write,
    parse_definition,
    unversioned_write_with_body,
    write_by,
    write_with_body,
)
from starling_api.http.openapi.bodies import body_of
from starling_api.http.problems import problems
from starling_api.ports import Stored
from starling_api.reports.campaign_report import ReportedDays, campaign_report
from starling_campaigns.definitions.lifecycle import ACTIVATE, PAUSE, RESUME
from starling_campaigns.definitions.policy import POLICY_KEY

_ACTIVATION: Final = """Validates the campaign again, and answers once the messenger has it: triggers received from then on count.
A broadcast goes to the members at its instant. Answers 501 if no messenger runs, and 503 while a partition of it is behind."""
_OPERATIONS: Final = (
    (ACTIVATE, _ACTIVATION),
    (PAUSE, "A draft, which was never activated, cannot be paused."),
    (RESUME, "A draft, which was never activated, cannot be resumed."),
)


def campaign_routes() -> APIRouter:
    """Return the routes under `/v1/campaigns/{key}`: life cycle, versions, preview, report, dry run and test."""
    router = APIRouter(prefix="/v1/campaigns", tags=["campaigns"])
    _add_life_cycle(router)
    _add_insights(router)
    _add_test(router)
    return router


def _add_life_cycle(router: APIRouter) -> None:
    """Add the routes that change the state of a campaign, and list its changes."""
    for operation, description in _OPERATIONS:
        router.add_api_route(
            f"/{{key}}/{operation}",
            _state_change(operation),
            methods=["POST"],
            summary=f"{operation.title()} a campaign",
            description=description,
            operation_id=f"{operation}_campaign",
            responses={200: {"model": MODELS[CAMPAIGNS.name]}, **problems(*COMMON, 404, 409, 412, 422, 501, 503)},
        )
    router.add_api_route(
        "/{key}/versions",
        _versions,
        methods=["GET"],
        summary="List the changes of a campaign",
        operation_id="list_campaign_versions",
        responses={200: {"model": VersionPageModel}, **problems(*COMMON, 404)},
    )


def _add_insights(router: APIRouter) -> None:
    """Add the routes that show what a campaign would do, and what it has done."""
    router.add_api_route(
        "/{key}/preview",
        _preview,
        methods=["POST"],
        summary="Render the message of a campaign for a user",
        operation_id="preview_campaign",
        responses={200: {"model": CampaignPreviewModel}, **problems(*COMMON, 404, 413, 422)},
        openapi_extra=body_of("CampaignPreviewRequest"),
    )
    router.add_api_route(
        "/{key}/report",
        _report,
        methods=["GET"],
        summary="Read the funnel and the lift of a campaign",
        operation_id="get_campaign_report",
        responses={200: {"model": CampaignReportModel}, **problems(*COMMON, 404)},
    )
    router.add_api_route(
        "/{key}/dry-run",
        _dry_run,
        methods=["POST"],
        summary="Count the members of a campaign by what would happen now",
        operation_id="dry_run_campaign",
        responses={200: {"model": DryRunModel}, **problems(*COMMON, 404, 422, 429)},
    )


def _add_test(router: APIRouter) -> None:
    router.add_api_route(
        "/{key}/test",
        _test,
        methods=["POST"],
        summary="Send a test message of a campaign",
        operation_id="test_campaign",
        status_code=202,
        responses={202: {"model": TestMessagesModel}, **problems(*COMMON, 404, 409, 413, 422)},
        openapi_extra=body_of("CampaignTestRequest"),
    )


def policy_routes() -> APIRouter:
    """Return the routes that read and replace the policy of a workspace."""
    router = APIRouter(prefix="/v1/policy", tags=["policy"])
    view: dict[int | str, dict[str, Any]] = {200: {"model": MODELS[POLICIES.name]}}
    router.add_api_route(
        "", _read_policy, methods=["GET"],
        summary="Read the policy of the workspace",
        description="404 without a stored policy: there are no quiet hours, caps or control group then, and consent is opt-in.",
        operation_id="get_policy",
        responses={**view, **problems(*COMMON, 404)},
    )  # fmt: skip
    router.add_api_route(
        "", _replace_policy, methods=["PUT"],
        summary="Replace the policy of the workspace",
        description="The body replaces the whole policy. An equal body has no effect.",
        operation_id="replace_policy",
        responses={**view, **problems(*COMMON, 404, 409, 412, 413, 422, 501)},
        openapi_extra=body_of("PolicyUpdate"),
    )  # fmt: skip
    return router


def _state_change(operation: str) -> Callable[..., Response]:
    def change(key: str, services: UsedServices, write: Annotated[Write, Depends(write_by(Role.EDITOR))]) -> Response:
        def act() -> Stored:
            found = commands_for(services, write).change_state(operation, write.author, key, write.if_match)
            return Stored(200, to_json(services.queries.document(CAMPAIGNS, write.author.workspace, found)), etag(found))

        return answered(services, write, act)

    return change


def _versions(key: str, services: UsedServices, caller: Viewer, page: Page) -> Response:
    """Every change of the campaign, the oldest first."""
    return JSONResponse(services.queries.versions(CAMPAIGNS, caller.workspace, key, page))


def _report(
    key: str,
    services: UsedServices,
    caller: Viewer,
    since: Annotated[str | None, Query(alias="from", description="Only this day and later ones")] = None,
    until: Annotated[str | None, Query(alias="to", description="Only days before this one")] = None,
) -> Response:
    """The funnel by day, version and variant, the oldest day first, and the lift over the people who were held out.

    A message counts on the day of its decision in the zone of the workspace, also for what happens to it later. The lift counts
    each person once, by the first message of the campaign, over all days.
    """
    services.queries.definition(CAMPAIGNS, caller.workspace, key)  # raises NotFound
    return JSONResponse(campaign_report(services.campaign_counts, caller.workspace, key, ReportedDays(since, until)))


def _reads(services: UsedServices) -> Reads:
    return Reads(services.queries, services.people, services.suppressed)


def _requested(body: Body) -> RequestedPreview:
    return requested_preview(parse_definition(body))


def _preview(
    key: str, services: UsedServices, caller: Viewer, wanted: Annotated[RequestedPreview, Depends(_requested)]
) -> Response:
    """The parts of the message, rendered with the traits of the profile, and what the policy decides about it if it is due now.
    Membership is not considered. Nothing is sent or stored.
    """
    with services.gate.admitted(caller.workspace):
        return JSONResponse(previewed(_reads(services), caller.workspace, key, wanted))


def _test(key: str, services: UsedServices, write: Annotated[Write, Depends(unversioned_write_with_body(Role.EDITOR))]) -> Response:
    """Sends the message to the addresses, rendered with the traits of the user, with `[Test]` before the subject; that of a webhook
    to the URL of its target, with the header `starling-test: true`. Only the
    suppression of an address holds it back. The message is counted nowhere, has no effect on the user, and its outcomes are no
    events.
    """

    def act() -> Stored:
        channel, requests = test_requests(services.queries, write.author, key, requested_test(write.document))
        if not write.dry_run:
            services.message_topics.test_messages(write.author, channel, requests)
        sent = [{"to": one["address"], "delivery_id": one["delivery_id"]} for one in requests]
        return Stored(202, to_json({"campaign": key, "variant": requests[0]["variant"], "messages": sent}), None)

    with services.gate.admitted(write.author.workspace):
        return answered(services, write, act)


def _dry_run(
    key: str,
    services: UsedServices,
    caller: Viewer,
    cursor: Annotated[str | None, Query(max_length=40_000, description="`next_cursor` of the previous answer")] = None,
) -> Response:
    """What the policy decides about a message to each current member of the campaign's segment that is due now, by the messenger's
    states. Members whose address is suppressed count as `drop` with the reason `suppressed`. Missing values of templates are not
    considered. Nothing is sent or stored.
    """
    with services.gate.admitted(caller.workspace):
        return JSONResponse(dry_run(_reads(services), caller.workspace, key, cursor))


_dry_run.__doc__ = f"{_dry_run.__doc__} An answer counts at most {MAX_COUNTED:,} members."


def _read_policy(services: UsedServices, caller: Viewer) -> Response:
    definition, shown = services.queries.definition(POLICIES, caller.workspace, POLICY_KEY)
    return JSONResponse(shown, headers={"ETag": etag(definition)})


def _replace_policy(services: UsedServices, write: Annotated[Write, Depends(write_with_body(Role.ADMIN))]) -> Response:
    def act() -> Stored:
        _, found = commands_for(services, write).put(POLICIES, write.author, POLICY_KEY, write.document, write.if_match)
        return Stored(200, to_json(services.queries.document(POLICIES, write.author.workspace, found)), etag(found))

    return answered(services, write, act)
