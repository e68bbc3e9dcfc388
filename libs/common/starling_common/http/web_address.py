"""Pure core: what a URL must be so that a message can be sent to it, for the API that takes it and the channel that uses it."""

import ipaddress
import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

import idna

_PLAIN_LABEL: Final = re.compile(r"(?!xn--)[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?", re.IGNORECASE)
"""A label of ASCII alone. IDNA knows no underscore, but names inside of a network have it."""

_MAX_NAME_CHARACTERS: Final = 253


@dataclass(frozen=True, slots=True)
class WebAddress:
    """The parts of an http or https URL. `host` is ASCII: an IP address, or a name as DNS and TLS take it."""

    scheme: str
    host: str
    port: int | None
    path: str
    query: str
    has_credentials: bool

    @property
    def host_header(self) -> str:
        """The value of the `Host` header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port is None else f"{host}:{self.port}"


def parse_web_address(url: str) -> WebAddress:
    """Return the parts of a URL. Raises: ValueError with the reason, in words for the URL's author."""
    if not url.isprintable() or " " in url:
        raise ValueError("it contains a space or a control character: percent-encode it")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as cause:
        raise ValueError(f"it is no URL: {cause}") from cause
    if parts.scheme not in {"http", "https"}:
        raise ValueError("it must be an http or https URL")
    if not parts.hostname:
        raise ValueError("it must be an http or https URL with a host")
    if port == 0:
        raise ValueError("its port must be between 1 and 65535")
    host = _ip_address(parts.hostname) if "[" in parts.netloc else _name(parts.hostname)
    return WebAddress(parts.scheme, host, port, parts.path, parts.query, "@" in parts.netloc)


def _ip_address(host: str) -> str:
    try:
        return str(ipaddress.IPv6Address(host if "%" not in host else ""))  # a zone means something on one machine only
    except ValueError as cause:
        raise ValueError(f"its host [{host}] is no IPv6 address") from cause


def _name(host: str) -> str:
    try:
        mapped = host if host.isascii() else idna.uts46_remap(host)
        labels = [_label(label) for label in mapped.removesuffix(".").split(".")]
    except idna.IDNAError as cause:
        raise ValueError(f"its host {host!r} is no host name: {cause}") from cause
    name = ".".join(labels)
    if len(name) > _MAX_NAME_CHARACTERS:
        raise ValueError(f"its host is longer than {_MAX_NAME_CHARACTERS} characters")
    return name


def _label(label: str) -> str:
    return label if _PLAIN_LABEL.fullmatch(label) else idna.alabel(label).decode()
