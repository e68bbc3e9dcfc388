"""Adapter: the webhook channel of campaigns: the rendered body to the endpoint of the target, signed as the feed is."""

import json
from typing import Any, Final

from starling_campaigns.channels import WEBHOOK
from starling_common.http.outbound.signatures import signed_headers
from starling_common.time.instants import wall_clock_ms
from starling_delivery.channel import AT_LEAST_ONCE, Again, Answer, Delivered, Gone, Impossible, Message, Unknown
from starling_delivery.channels.http import HttpAnswer, HttpChannel, MaybeSent, NotSent
from starling_delivery.targets import SEGMENT_IDENTIFY, SEGMENT_TRACK

_NO_JSON: Final = object()

EVENT: Final = "Campaign Message"
"""The name of the `track` call."""


class CampaignWebhookChannel(HttpChannel):
    """POSTs the body. 2xx is delivered, 410 disables the target, any other answer is tried again. Redirects are not followed."""

    name = WEBHOOK
    semantics = AT_LEAST_ONCE

    async def send(self, message: Message) -> Answer:
        """Make one attempt and return its result."""
        target = self.settings_of(message)
        if target is None:
            return Impossible("target_archived")
        body = body_of(message, target.get("format"))
        headers = signed_headers([target["secret"]], message.message_id, body, wall_clock_ms())
        if _parsed(body) is _NO_JSON:
            headers["content-type"] = "text/plain; charset=utf-8"
        if message.is_test:
            headers["starling-test"] = "true"
        try:
            answer = await self.http.post(target["url"], body, headers)
        except NotSent as error:
            return Again(str(error))
        except MaybeSent as error:
            return Unknown(str(error))
        return answer_of(answer)


def answer_of(answer: HttpAnswer) -> Answer:
    """Return the result of a response."""
    if answer.ok:
        return Delivered(answer.status)
    if answer.status == 410:
        return Gone("the endpoint answered 410 Gone", 410)
    return Again(f"the endpoint answered {answer.status}", answer.status, answer.retry_after)


def body_of(message: Message, kind: str | None) -> str:
    """Return the body of a message, equal in each attempt: as it was rendered, or within a call of the Segment specification.

    `kind`: the format of the target. The properties of a `track` call, and the traits of an `identify` call, are the rendered
    object; anything else is their `body`.
    """
    rendered = message.content["body"]
    if kind not in {SEGMENT_TRACK, SEGMENT_IDENTIFY}:
        return rendered
    parsed = _parsed(rendered)
    fields = parsed if isinstance(parsed, dict) else {"body": rendered}
    call: dict[str, Any] = {
        "messageId": message.message_id,
        "userId": message.user_id,
        "context": {"campaign": {"name": message.campaign}, "library": {"name": "starling-webhooks", "version": "1"}},
    }
    if kind == SEGMENT_TRACK:
        call = {"type": "track", "event": EVENT, "properties": fields, **call}
    else:
        call = {"type": "identify", "traits": fields, **call}
    return json.dumps(call, separators=(",", ":"), ensure_ascii=False)


def _parsed(body: str) -> Any:
    """Return the JSON of a body; `_NO_JSON` if it is none."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return _NO_JSON
