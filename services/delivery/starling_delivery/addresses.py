"""Adapter: where a URL really leads, and whether we may go there. Guards against requests into our own network."""

import asyncio
import ipaddress
import socket
from dataclasses import dataclass
from urllib.parse import urlsplit


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
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise AddressRefused("the address must be an http or https URL")
    if parts.scheme == "http" and not allow_private:
        raise AddressRefused("the address must begin with https://")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    found = await asyncio.get_running_loop().getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)
    addresses = [str(entry[4][0]) for entry in found]
    if not allow_private and not all(is_public(address) for address in addresses):
        raise AddressRefused("the address leads into a private network")
    pinned = f"[{addresses[0]}]" if ":" in addresses[0] else addresses[0]
    path = parts.path or "/"
    query = f"?{parts.query}" if parts.query else ""
    return Place(f"{parts.scheme}://{pinned}:{port}{path}{query}", parts.hostname, parts.netloc.rpartition("@")[2])


def is_public(address: str) -> bool:
    """Whether an IP address is one that anybody on the internet may have."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    return ip.is_global and not ip.is_multicast
