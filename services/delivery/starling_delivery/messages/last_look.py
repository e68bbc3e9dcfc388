"""Pure core: the last look before each attempt: whether the message may still be sent, and its rendered parts."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from starling_campaigns import PartFailed, render_message
from starling_common.cassandra.read_models import ARCHIVED, PAUSED
from starling_delivery.channel import Message, Park
from starling_delivery.messages.definitions import Definitions, KnownCampaign
from starling_delivery.messages.refusals import RecentConsent, Suppressions
from starling_delivery.policy import EXPIRED, Request, Step
from starling_policy import TRANSACTIONAL
from starling_policy.person import COMPLAINT

NOT_READ: Final = Park("the definition of the campaign has not been read yet", "definition_not_read")
CAMPAIGN_PAUSED: Final = Park("the campaign is paused", "campaign_paused")


@dataclass(frozen=True)
class LastLook:
    """Everything that the last look compares. `hold`: why a rendered message cannot be sent by this process now, or None.

    `unsubscribe_link`: the link by which the person of a message unsubscribes, or None.
    """

    definitions: Definitions
    suppressions: Suppressions
    consent: RecentConsent
    hold: Callable[[Message], Park | None] = lambda _message: None
    unsubscribe_link: Callable[[Message], str | None] = lambda _message: None

    def __call__(self, request: Request, now_ms: int) -> Message | Step | Park:
        """Return the rendered message, or what becomes of it instead.

        Raises: ValueError, KeyError for a request that no version of the messenger writes.
        """
        expires_at = request.get("expires_at")
        if expires_at is not None and now_ms > expires_at:
            return Step("FAILED", EXPIRED)
        known = self.definitions.campaign(request["workspace"], request["campaign"])
        if known is None or request["version"] > known.version:
            return NOT_READ
        return self._stopped(request, known) or self._rendered(request, known, now_ms)

    def _stopped(self, request: Request, known: KnownCampaign) -> Step | Park | None:
        """Return what becomes of the message because of the states of the campaign and its target; None if both allow it."""
        if not request.get("is_test"):
            if known.status == ARCHIVED:
                return Step("SUPPRESSED", "archived")
            if known.status == PAUSED:
                return CAMPAIGN_PAUSED
        target = self.definitions.find(request["workspace"], known.target)
        if target.target is None:
            return NOT_READ if target.version == 0 else Step("SUPPRESSED", "target_archived")
        return None

    def _rendered(self, request: Request, known: KnownCampaign, now_ms: int) -> Message | Step | Park:
        campaign = known.at(request["version"])
        purpose = request["purpose"] or campaign.rules.purpose
        is_test = bool(request.get("is_test"))
        if reason := self._refusal(request, purpose, now_ms, is_test=is_test):
            return Step("SUPPRESSED", reason)
        data: dict[str, Any] = json.loads(request["context"] or "{}")
        message = _message(request, known.target, purpose, is_test=is_test)
        try:
            rendered = render_message(
                campaign,
                request["variant"],
                request["user_id"],
                data.get("traits") or {},
                data.get("event"),
                request["locale"],
                unsubscribe_url=self.unsubscribe_link(message),
            )
        except PartFailed as error:
            return Step("FAILED", f"template_error: {error}")
        message = replace(message, content=_as_test(rendered.parts) if is_test else rendered.parts)
        # Before missing values: a process without a link to unsubscribe postpones the message, and drops nothing.
        if park := self.hold(message):
            return park
        return Step("SUPPRESSED", "template_missing") if rendered.missing else message

    def _refusal(self, request: Request, purpose: str, now_ms: int, *, is_test: bool) -> str | None:
        """Return why the person gets no such message: the reasons of the policy that can change after its decision.

        A test goes to any address that is not suppressed.
        """
        kind = self.suppressions.kind(request["workspace"], request["address"])
        if is_test:
            return None if kind is None else "suppressed"
        is_transactional = purpose == TRANSACTIONAL
        if kind is not None and not (is_transactional and kind == COMPLAINT):
            return "suppressed"
        if not is_transactional and self.consent.refuses(request["workspace"], request["user_id"], purpose, now_ms):
            return "no_consent"
        return None


def _as_test(parts: Mapping[str, str]) -> Mapping[str, str]:
    """Return the parts with `[Test]` before the subject, or before the text of a message without one."""
    marked = next((name for name in ("subject", "title", "text") if name in parts), None)
    return parts if marked is None else {**parts, marked: f"[Test] {parts[marked]}"}


def _message(request: Request, target: str, purpose: str, *, is_test: bool) -> Message:
    return Message(
        workspace=request["workspace"],
        user_id=request["user_id"],
        delivery_id=request["delivery_id"],
        message_id=request["delivery_id"],
        target_key=target,
        address=request["address"],
        payload="",
        attempt=request["attempt"],
        campaign=request["campaign"],
        purpose=purpose,
        is_test=is_test,
        expires_at=request.get("expires_at"),
    )
