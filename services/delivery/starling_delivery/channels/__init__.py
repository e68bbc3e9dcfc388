"""The channels, one module each. A new channel of feeds is registered in `CHANNELS`, one of campaigns in `CAMPAIGN_CHANNELS`."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from starling_delivery.channel import Channel, MessageChannel
from starling_delivery.channels.campaign_webhook import CampaignWebhookChannel
from starling_delivery.channels.email.channel import EmailChannel
from starling_delivery.channels.push.channel import PushChannel
from starling_delivery.channels.sms import SmsChannel
from starling_delivery.channels.webhook import WebhookChannel
from starling_delivery.messages.definitions import Definitions
from starling_delivery.settings import EmailSettings, Settings
from starling_delivery.targets import Targets

CHANNELS: Mapping[str, Callable[[Settings, Targets], Channel]] = {
    "webhook": WebhookChannel.open,
}
"""Name -> function that opens the channel."""

Opening: TypeAlias = Callable[[EmailSettings, Definitions, Callable[[str], None]], MessageChannel]
"""(settings, campaigns and targets, function that is called at failpoints) -> the channel."""

CAMPAIGN_CHANNELS: Mapping[str, Opening] = {
    "email": EmailChannel.open,
    "push": PushChannel.open,
    "sms": SmsChannel.open,
    "webhook": CampaignWebhookChannel.open,
}
"""Name -> function that opens the channel. One process serves all of them, each with its own lanes."""
