"""Pure core: the channels of campaigns: the parts of their messages and the targets that can send them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

EMAIL: Final = "email"
PUSH: Final = "push"
SMS: Final = "sms"
WEBHOOK: Final = "webhook"


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a message, which is a template. `is_header`: rendered line breaks are refused; `is_html`: values are escaped."""

    name: str
    required: bool = False
    is_header: bool = False
    is_html: bool = False


@dataclass(frozen=True, slots=True)
class Channel:
    """One channel. `one_of`: at least one of these parts is required. `targets`: the channels of targets that can send it."""

    name: str
    parts: tuple[Part, ...]
    targets: tuple[str, ...]
    one_of: tuple[str, ...] = ()

    def part(self, name: str) -> Part:
        """Return the part of that name. Raises: KeyError."""
        return {part.name: part for part in self.parts}[name]


CHANNELS: Final[Mapping[str, Channel]] = {
    channel.name: channel
    for channel in (
        Channel(
            EMAIL,
            (Part("subject", required=True, is_header=True), Part("html", is_html=True), Part("text")),
            (EMAIL,),
            one_of=("html", "text"),
        ),
        Channel(PUSH, (Part("title", required=True), Part("body", required=True), Part("url")), ("webpush", "fcm", "apns")),
        Channel(SMS, (Part("text", required=True),), (SMS,)),
        Channel(WEBHOOK, (Part("body", required=True),), (WEBHOOK,)),
    )
}
"""Name -> channel. Campaigns write to people through these; audience sync, Slack, Teams and Kafka are feeds."""

SLACK: Final = "slack"
TEAMS: Final = "teams"
KAFKA: Final = "kafka"
AUDIENCE: Final = "audience"
"""The channel that keeps an audience of another system equal to segments. The service of audience sync sends it."""
FEED_CHANNELS: Final = frozenset({SLACK, TEAMS, KAFKA})
"""The channels of targets that get the changes of their segments, without a campaign. The process of the feeds sends them."""
CHANNELS_WITHOUT_CAMPAIGNS: Final = FEED_CHANNELS | {AUDIENCE}
"""The channels of targets that no campaign can have: those of feeds, and audience sync."""

SENT_CHANNELS: Final = frozenset({EMAIL, PUSH, SMS, WEBHOOK})
"""The channels that a process of this version sends. Each has a topic of requests."""
