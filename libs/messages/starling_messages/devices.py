"""Pure core: the devices of the channel `push`, and the channel of the targets that reaches each of them.

The address of a device is the token of a mobile app, or the JSON of a browser's subscription (W3C Push API).
"""

import json
import re
from collections.abc import Iterable
from typing import Final, NamedTuple

WEBPUSH: Final = "webpush"
FCM: Final = "fcm"
APNS: Final = "apns"

_APNS_TOKEN: Final = re.compile(r"[0-9A-Fa-f]{64,400}")
"""A token of APNs is hexadecimal, and its length is not fixed. A token of FCM has other characters."""
_TOKEN: Final = re.compile(r"[A-Za-z0-9_:.|%~-]{8,4096}")
"""The characters of tokens of FCM. An address of the web is none."""
_KEY: Final = re.compile(r"[A-Za-z0-9_-]{1,200}={0,2}")


class Subscription(NamedTuple):
    """A browser's subscription. `p256dh`, `auth`: its public key and its secret, in base64url."""

    endpoint: str
    p256dh: str
    auth: str


def subscription_of(address: str) -> Subscription | None:
    """Return the subscription of an address; None for a token, and for JSON that is no subscription."""
    if not address.startswith("{"):
        return None
    try:
        found = json.loads(address)
    except (ValueError, RecursionError):
        return None
    keys = found.get("keys")
    if not isinstance(keys, dict):
        return None
    endpoint, p256dh, auth = found.get("endpoint"), keys.get("p256dh"), keys.get("auth")
    if not isinstance(endpoint, str) or not endpoint.startswith(("https://", "http://")):
        return None
    if not isinstance(p256dh, str) or not isinstance(auth, str) or not _KEY.fullmatch(p256dh) or not _KEY.fullmatch(auth):
        return None
    return Subscription(endpoint, p256dh, auth)


def is_reached(address: str, target: str) -> bool:
    """Return whether targets of a channel (`webpush`, `fcm`, `apns`) reach a device."""
    if target == WEBPUSH:
        return subscription_of(address) is not None
    is_of_apple = _APNS_TOKEN.fullmatch(address) is not None
    if target == APNS:
        return is_of_apple
    return target == FCM and not is_of_apple and _TOKEN.fullmatch(address) is not None


def reached_devices(addresses: Iterable[str], target: str | None) -> tuple[str, ...]:
    """Return the devices that targets of a channel reach, in their order. `target` None, or of another channel: all of them."""
    if target not in {WEBPUSH, FCM, APNS}:
        return tuple(addresses)
    return tuple(address for address in addresses if is_reached(address, target))
