"""Adapter: where a URL really leads, and whether we may go there. Guards against requests into our own network."""

import asyncio
import ipaddress
import socket
from dataclasses import dataclass

from starling_common.web_address import parse_web_address


class AddressRefused(Exception):
    """The URL leads where messages are not sent; the message says what is allowed."""


@dataclass(frozen=True, slots=True)
class Place:
    """A URL with its host name replaced by the address that was checked, so that nobody can change it in between."""

    url: str
    host: str
    host_header: str


async def resolve(url: str, *, allow_private: bool) -> Place:
    """Look the host up once and pin the answer.

    Raises: AddressRefused when a rule forbids it, OSError when the name cannot be looked up.
    """
    try:
        address = parse_web_address(url)
    except ValueError as cause:
        raise AddressRefused(f"the address cannot be called: {cause}") from cause
    if address.scheme == "http" and not allow_private:
        raise AddressRefused("the address must begin with https://")
    port = address.port or (443 if address.scheme == "https" else 80)
    found = await asyncio.get_running_loop().getaddrinfo(address.host, port, type=socket.SOCK_STREAM)
    addresses = [str(entry[4][0]) for entry in found]
    if not allow_private and not all(is_public(one) for one in addresses):
        raise AddressRefused("the address leads into a private network")
    pinned = f"[{addresses[0]}]" if ":" in addresses[0] else addresses[0]
    path = address.path or "/"
    query = f"?{address.query}" if address.query else ""
    return Place(f"{address.scheme}://{pinned}:{port}{path}{query}", address.host, address.host_header)


def is_public(address: str) -> bool:
    """Whether an IP address is one that anybody on the internet may have."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    return ip.is_global and not ip.is_multicast
