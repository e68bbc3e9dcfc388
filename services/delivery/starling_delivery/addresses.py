"""Adapter: resolves the addresses of webhooks and refuses private networks, which prevents server-side request forgery."""

import asyncio
import ipaddress
import socket
from dataclasses import dataclass

from starling_common.http.web_address import parse_web_address


class AddressRefused(Exception):
    """The URL is not allowed. The message states the allowed addresses."""


@dataclass(frozen=True, slots=True)
class ResolvedAddress:
    """A URL with the checked IP address in place of its host name, so that a later DNS change has no effect."""

    url: str
    host: str
    host_header: str


async def resolve(url: str, *, allow_private: bool) -> ResolvedAddress:
    """Resolve the host once and return the URL with that address.

    Raises: AddressRefused for a forbidden address, OSError for a name that cannot be resolved.
    """
    try:
        address = parse_web_address(url)
    except ValueError as cause:
        raise AddressRefused(f"the address is invalid: {cause}") from cause
    if address.scheme == "http" and not allow_private:
        raise AddressRefused("the address must start with https://")
    port = address.port or (443 if address.scheme == "https" else 80)
    found = await asyncio.get_running_loop().getaddrinfo(address.host, port, type=socket.SOCK_STREAM)
    addresses = [str(entry[4][0]) for entry in found]
    if not allow_private and not all(is_public(one) for one in addresses):
        raise AddressRefused("the address is in a private network")
    pinned = f"[{addresses[0]}]" if ":" in addresses[0] else addresses[0]
    path = address.path or "/"
    query = f"?{address.query}" if address.query else ""
    return ResolvedAddress(f"{address.scheme}://{pinned}:{port}{path}{query}", address.host, address.host_header)


def is_public(address: str) -> bool:
    """Return whether an IP address is publicly routable."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    return ip.is_global and not ip.is_multicast
