"""Pure core: the token by which the callbacks of a provider name a message."""

from starling_delivery.channel import Message
from starling_messages.links import TEST, Callback, Link, Links
from starling_policy import address_digest


def callback_token(message: Message, channel: str, links: Links) -> str:
    """Return the token that a message carries to its provider. That of a test is one for all: nothing is reported of it."""
    if message.is_test:
        return TEST
    link = Link(
        message.workspace,
        message.user_id,
        message.delivery_id,
        channel,
        message.target_key,
        message.campaign,
        message.purpose,
    )
    return links.callback_token(Callback(link, address_digest(message.address)))
