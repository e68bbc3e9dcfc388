"""Pure core: requests that a program makes before a person does, or in the person's place."""

import re
from collections.abc import Callable
from typing import Final

HeaderOf = Callable[[str], str | None]
"""Returns a header by its lower-case name; None without one."""

_PREFETCHES: Final = ("purpose", "sec-purpose", "x-purpose", "x-moz")
_PROGRAMS: Final = re.compile(
    r"bot\b|crawl|spider|preview|scan|proofpoint|mimecast|barracuda|safelinks|urldefense|symantec|fireeye|trendmicro|"
    r"python-|curl/|wget/|go-http-client|java/|okhttp|headless|slackbot|whatsapp|facebookexternalhit|skypeuripreview",
    re.IGNORECASE,
)
_BARE: Final = "Mozilla/5.0"
"""The whole user agent of a mail client's privacy proxy, which loads every image when the mail arrives."""


def is_machine(header: HeaderOf) -> bool:
    """Return whether a program made the request: a prefetch, a scanner of links, or a privacy proxy."""
    if any("prefetch" in (header(name) or "").lower() or (header(name) or "").lower() == "preview" for name in _PREFETCHES):
        return True
    agent = (header("user-agent") or "").strip()
    return not agent or agent == _BARE or _PROGRAMS.search(agent) is not None
