"""The channels, one module each. A new channel is registered in `CHANNELS`."""

from collections.abc import Callable, Mapping

from starling_delivery.channel import Channel
from starling_delivery.channels.webhook import WebhookChannel
from starling_delivery.settings import Settings
from starling_delivery.targets import Targets

CHANNELS: Mapping[str, Callable[[Settings, Targets], Channel]] = {
    "webhook": WebhookChannel.open,
}
"""Name -> function that opens the channel."""
