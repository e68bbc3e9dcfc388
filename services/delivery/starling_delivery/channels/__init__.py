"""The channels, one file each. `CHANNELS` is where a new one is registered."""

from collections.abc import Callable, Mapping

from starling_delivery.channel import Channel
from starling_delivery.channels.webhook import WebhookChannel
from starling_delivery.settings import Settings
from starling_delivery.targets import Targets

CHANNELS: Mapping[str, Callable[[Settings, Targets], Channel]] = {
    "webhook": WebhookChannel.open,
}
"""Name -> how to open it."""
