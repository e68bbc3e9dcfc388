"""Pure core: the rendered message of a campaign for one user: the parts in the user's locale, within the bounds of the channel."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from starling_campaigns.bounds import MAX_HEADER_CHARACTERS, MAX_OUTPUT_BYTES, MAX_PUSH_BYTES, MAX_SMS_SEGMENTS
from starling_campaigns.channels import PUSH, SMS
from starling_campaigns.definitions.campaign import Campaign
from starling_campaigns.locales import canonical_locale
from starling_campaigns.sms import SmsSize, sms_size
from starling_campaigns.templates.sandbox import render
from starling_campaigns.templates.values import Meter, RenderingFailed

_SURROGATE: Final = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Rendered:
    """A rendered message. `missing`: paths of missing values without a default; with any, the message is dropped.

    `locale`: the canonical locale that was asked for; None for the base. `sms`: the size of an SMS.
    """

    parts: Mapping[str, str]
    missing: tuple[str, ...]
    locale: str | None
    sms: SmsSize | None = None


class PartFailed(RenderingFailed):
    """One part cannot be rendered with this data. `part`: its name; the empty text for all parts together."""

    def __init__(self, part: str, code: str, message: str) -> None:
        super().__init__(code, f"{part}: {message}" if part else message)
        self.part = part


def render_message(  # noqa: PLR0913 - what a template can read, and where it is found
    campaign: Campaign,
    variant: str,
    user_id: str,
    traits: Mapping[str, Any],
    event: Mapping[str, Any] | None,
    locale: str | None = None,
    *,
    unsubscribe_url: str | None = None,
) -> Rendered:
    """Return the message of a variant. `event`: `name` and `properties`; None without one. `locale` None: the trait `locale`.

    `unsubscribe_url`: of this message; None if it has none, which is a missing value.

    Raises: PartFailed; KeyError for an unknown variant.
    """
    used = canonical_locale(traits.get("locale") if locale is None else locale)
    templates = campaign.contents[variant].templates(used)
    data = {"traits": traits, "event": event, "user_id": user_id, "unsubscribe_url": unsubscribe_url}
    meter, parts = Meter(), {}
    for part in campaign.channel.parts:
        if part.name in templates:
            try:
                parts[part.name] = render(templates[part.name], data, meter, is_html=part.is_html, is_header=part.is_header)
            except RenderingFailed as error:
                raise PartFailed(part.name, error.code, str(error)) from error
            if _SURROGATE.search(parts[part.name]):
                raise PartFailed(part.name, "template_error", "the text has half of a surrogate pair, which no channel can send")
            if part.is_header and len(parts[part.name]) > MAX_HEADER_CHARACTERS:
                raise PartFailed(part.name, "template_too_large", f"a header has at most {MAX_HEADER_CHARACTERS} characters")
    size = _checked_size(campaign, parts)
    return Rendered(parts, tuple(meter.missing), used, size)


def _checked_size(campaign: Campaign, parts: Mapping[str, str]) -> SmsSize | None:
    channel = campaign.channel.name
    size_bytes = sum(len(text.encode("utf-8", "surrogatepass")) for text in parts.values())
    most = MAX_PUSH_BYTES if channel == PUSH else MAX_OUTPUT_BYTES
    if size_bytes > most:
        raise PartFailed("", "template_too_large", f"the message has {size_bytes} bytes: at most {most} in the channel {channel}")
    if channel != SMS:
        return None
    size = sms_size(parts["text"])
    if size.segments > MAX_SMS_SEGMENTS:
        raise PartFailed("text", "template_too_large", f"the SMS has {size.segments} segments: at most {MAX_SMS_SEGMENTS}")
    return size
