"""Adapter: the SMS channel: one message of Twilio's API, or of a provider with the same one, at most once."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Self
from urllib.parse import quote, urlencode

from starling_campaigns.bounds import MAX_SMS_SEGMENTS
from starling_campaigns.channels import SMS
from starling_campaigns.sms import sms_size
from starling_delivery.channel import AT_MOST_ONCE, Again, Answer, Bounced, Delivered, Gone, Impossible, Message, Unknown
from starling_delivery.channels.http import HttpAnswer, HttpChannel, MaybeSent, NotSent
from starling_delivery.messages.callback import callback_token
from starling_delivery.messages.definitions import Definitions
from starling_delivery.settings import EmailSettings, KitSettings
from starling_messages.links import CALLBACK_FIELD, Links
from starling_policy.checks import is_address

UNSUBSCRIBED: Final = 21610
"""The person has answered STOP, and the provider sends no more messages of this sender."""

_OF_MESSAGE: Final = frozenset({
    21211, 21214, 21217, 21219, 21265, 21401, 21407, 21408, 21421, 21602, 21604, 21605, 21612, 21614, 21617, 21619, 21635,
    30003, 30004, 30005, 30006,
})  # fmt: skip
"""The codes of Twilio that concern this number or text alone: invalid, unreachable, not mobile, in a forbidden region, too long."""

_BUSY: Final = frozenset({20429, 21611, 30001, 14107})
"""The codes of Twilio for too many requests or a full queue of the sender."""

_REFUSED: Final = frozenset({400, 405, 406, 411, 413, 414, 415, 422})
"""The statuses that refuse what was sent, whatever the code. Others concern the account or the provider."""

_MOST_DETAIL: Final = 300


@dataclass(frozen=True, slots=True)
class StatusCallbacks:
    """Where providers report what became of an SMS. `base_url`: of the tracker, without a slash at its end."""

    base_url: str
    links: Links

    def url(self, message: Message) -> str:
        """Return the address that the provider calls about a message."""
        place = f"{quote(message.workspace, safe='')}/{quote(message.target_key, safe='')}"
        return f"{self.base_url}/p/{place}?{CALLBACK_FIELD}={callback_token(message, SMS, self.links)}"


class SmsChannel(HttpChannel):
    """Sends SMS through the provider of the target."""

    name = SMS
    semantics = AT_MOST_ONCE
    callbacks: StatusCallbacks | None = None
    """None without a tracker: then nothing is known of an SMS after the provider has taken it."""

    @classmethod
    def open(cls, settings: KitSettings, definitions: Definitions, passed: Callable[[str], None]) -> Self:
        """Return a channel with its own HTTP client."""
        channel = super().open(settings, definitions, passed)
        if isinstance(settings, EmailSettings) and settings.email.tracker_url is not None:
            channel.callbacks = StatusCallbacks(str(settings.email.tracker_url).rstrip("/"), Links(settings.link_keys))
        return channel

    async def send(self, message: Message) -> Answer:
        """Make one attempt and return its result. Only `Again` allows another one: the provider surely has not taken the SMS."""
        target = self.settings_of(message)
        if target is None:
            return Impossible("target_archived")
        if reason := _why_not(message):
            return Impossible(reason)
        account = target["account_sid"]
        url = f"{target['base_url'].rstrip('/')}/2010-04-01/Accounts/{quote(account, safe='')}/Messages.json"
        fields = {"To": message.address, "From": target["from"], "Body": message.content["text"]}
        if self.callbacks is not None:
            fields["StatusCallback"] = self.callbacks.url(message)
        form = urlencode(fields)
        headers = {"content-type": "application/x-www-form-urlencoded", "accept": "application/json"}
        try:
            answer = await self.http.post(url, form, headers, auth=(account, target["auth_token"]))
        except NotSent as error:
            return Again(str(error))
        except MaybeSent as error:
            return Unknown(str(error))
        return answer_of(answer)


def _why_not(message: Message) -> str | None:
    """Return why a message cannot become an SMS; None if it can."""
    if not is_address(SMS, message.address):
        return "no_address: the address is not a number such as +4915112345678"
    text = message.content["text"]
    segments = sms_size(text).segments
    if segments > MAX_SMS_SEGMENTS:
        return f"the SMS has {segments} segments: at most {MAX_SMS_SEGMENTS}"
    return None if text else "the text is empty"


def answer_of(answer: HttpAnswer) -> Answer:
    """Return the result of a response."""
    status, (code, why) = answer.status, _error(answer)
    if answer.ok:
        return Delivered(status)
    if status == 429 or code in _BUSY:
        return Again(why, 429, answer.retry_after)
    if status in _REFUSED:
        return _refused(why, status, code)
    if status == 410:
        return Gone(why, status)
    # A gateway in between may have passed the request on; 503 is the answer of one that has not.
    return Unknown(why) if status >= 500 and status != 503 else Again(why, status, answer.retry_after)


def _refused(why: str, status: int, code: int | None) -> Answer:
    if code == UNSUBSCRIBED:
        return Bounced(why, status, by_person=True)
    if code is None or code in _OF_MESSAGE:
        return Impossible(why, status)
    # Perhaps a code of the account, such as for a sender that is not its own. The operator has an hour.
    return Again(why, status, is_of_target=False)


def _error(answer: HttpAnswer) -> tuple[int | None, str]:
    """Return the code of an error, None without one, and its text for the outcome."""
    found: Any = {} if answer.ok else answer.json()
    fields = found if isinstance(found, dict) else {}
    code, text = fields.get("code"), fields.get("message")
    parts = [str(code)] if type(code) is int else [f"the provider answered {answer.status}"]
    if isinstance(text, str):
        parts.append(" ".join(text.split()))
    why = " ".join(parts)[:_MOST_DETAIL].encode("utf-8", "replace").decode()
    return (code if type(code) is int else None), why
