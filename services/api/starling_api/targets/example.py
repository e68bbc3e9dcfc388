"""Pure core: the example digest of a test call, and what follows from the answer of the endpoint."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from starling_api.webhooks.example import Request
from starling_campaigns.channels import SLACK, TEAMS
from starling_campaigns.digests.digest import DEFAULT_TITLE, Digest, example_digest
from starling_campaigns.digests.slack import slack_message
from starling_campaigns.digests.teams import teams_message

RENDERERS: Final[Mapping[str, Callable[[Digest, str, str], str]]] = {SLACK: slack_message, TEAMS: teams_message}
"""Channel -> what renders its digests."""

_HEADERS: Final = {
    "content-type": "application/json; charset=utf-8",
    "user-agent": "Starling/1",
    "accept-encoding": "identity",
}


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
