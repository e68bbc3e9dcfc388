"""Pure core: which URLs and IP addresses a message may be sent to. It prevents server-side request forgery."""

import ipaddress
from typing import Final

from starling_common.http.web_address import parse_web_address

_SPECIAL: Final = tuple(
    ipaddress.ip_network(network)
    for network in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
        "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24",
        "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
        "::/96", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "100:0:0:1::/64", "2001::/23", "2001:db8::/32", "2002::/16",
        "2620:4f:8000::/48", "3fff::/20", "5f00::/16", "fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8",
    )
)  # fmt: skip
"""Every special-purpose range of IANA's registries, and multicast. Among them are the IPv6 forms that contain an IPv4 address:
compatible (::/96), NAT64 (64:ff9b::/96), Teredo (in 2001::/23) and 6to4 (2002::/16)."""

_GLOBAL_UNICAST: Final = ipaddress.ip_network("2000::/3")
"""The only IPv6 addresses that are assigned to hosts of the internet. Outside of it are further forms that contain an IPv4 address,
such as that of a translator (::ffff:0:0:0/96, RFC 2765), which `ipaddress` takes for global."""

_LOWEST_FREE_PORT: Final = 1024
_WEB_PORTS: Final = frozenset({80, 443})


class AddressRefused(Exception):
    """The URL is not allowed. The message states the allowed addresses."""


def checked_url(url: str, *, allow_private: bool) -> str:
    """Return the URL of an endpoint as it is requested, with its host in ASCII and without credentials.

    The address of the host is checked when the connection is opened. Raises: AddressRefused.
    """
    try:
        address = parse_web_address(url)
    except ValueError as cause:
        raise AddressRefused(f"the address is invalid: {cause}") from cause
    if address.scheme == "http" and not allow_private:
        raise AddressRefused("the address must start with https://")
    port = address.port or (443 if address.scheme == "https" else 80)
    if not allow_private and port < _LOWEST_FREE_PORT and port not in _WEB_PORTS:
        raise AddressRefused(f"the port {port} is not allowed: use 443, or a port from {_LOWEST_FREE_PORT}")
    query = f"?{address.query}" if address.query else ""
    return f"{address.scheme}://{address.host_header}{address.path or '/'}{query}"


def is_public(address: str) -> bool:
    """Return whether an IP address is publicly routable."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    if ip.version == 6 and ip not in _GLOBAL_UNICAST:
        return False
    return ip.is_global and not any(ip in network for network in _SPECIAL if network.version == ip.version)
