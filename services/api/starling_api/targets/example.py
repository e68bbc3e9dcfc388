"""Pure core: which targets a test call accepts, its example digest, and what follows from the answer of the endpoint."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from starling_api.definitions.definition import Definition
from starling_api.definitions.kinds.delivery import is_feed
from starling_api.webhooks.example import Request
from starling_campaigns.channels import AUDIENCE, SLACK, TEAMS
from starling_campaigns.digests.digest import DEFAULT_TITLE, Digest, example_digest
from starling_campaigns.digests.slack import slack_message
from starling_campaigns.digests.teams import teams_message
from starling_segments import DefinitionRefused, FieldError

RENDERERS: Final[Mapping[str, Callable[[Digest, str, str], str]]] = {SLACK: slack_message, TEAMS: teams_message}
"""Channel -> what renders its digests."""

_HEADERS: Final = {
    "content-type": "application/json; charset=utf-8",
    "user-agent": "Starling/1",
    "accept-encoding": "identity",
}


def refuse_without_test(current: Definition) -> None:
    """Raise DefinitionRefused for a target without a test call: one of campaigns, or of audience sync."""
    channel = current.document.get("channel")
    if not is_feed(current.document):
        reason, cure = (
            f"the messages of a target {channel!r} are those of campaigns",
            "POST /v1/campaigns/{key}/test sends a message of a campaign",
        )
    elif channel == AUDIENCE:
        reason, cure = "a test would change the audience", "see the status and 'disabled_because' of the target instead"
    else:
        return
    raise DefinitionRefused((FieldError("/channel", "wrong_type", reason, f"slack, teams or kafka; {cure}"),))


def example_request(document: Mapping[str, Any], number: str, now_ms: int) -> Request:
    """Return the request for the document of a target, with plain secrets. `number`: a unique id of the test."""
    digest = example_digest(document["segments"][0], now_ms)
    title = f"[Test] {document.get('title') or DEFAULT_TITLE}"
    body = RENDERERS[document["channel"]](digest, title[:150], f"test-{number}")
    return Request(document["url"], _HEADERS, (), f"test-{number}", body)


def advice(status: int) -> str | None:
    """Return what follows from the status of an answer; None for success."""
    if 200 <= status < 300:
        return None
    if status in {404, 410}:
        return f"the endpoint answered {status}: the same answer to a digest would disable the target"
    if status >= 500 or status in {408, 429}:
        return f"the endpoint answered {status}: the changes of a digest would be part of the next one"
    return f"the endpoint answered {status}: a digest would be dropped, so correct the url, or the rights behind it"
