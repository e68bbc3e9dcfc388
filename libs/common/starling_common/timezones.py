"""Pure core: the time zone of each workspace, which a segment has that names none of its own."""

import re
from collections.abc import Mapping
from typing import Final
from zoneinfo import ZoneInfo

DEFAULT: Final = "UTC"
_ENTRY: Final = re.compile(r"(?P<workspace>[a-z][a-z0-9_-]{0,63})=(?P<zone>[^\s=,]+)")


class Timezones:
    """All workspaces' time zones."""

    def __init__(self, text: str) -> None:
        """`text` is `workspace=zone`, comma separated, zones by their IANA name. Raises: ValueError that names the entry."""
        self._zones: dict[str, str] = {}
        for entry in filter(None, (part.strip() for part in text.split(","))):
            found = _ENTRY.fullmatch(entry)
            if found is None or not _is_zone(found["zone"]):
                raise ValueError(f"{entry!r}: expected workspace=zone with an IANA time zone, such as default=Europe/Berlin")
            self._zones[found["workspace"]] = found["zone"]

    def named(self) -> Mapping[str, str]:
        """The workspaces that have one of their own."""
        return dict(self._zones)

    def of(self, workspace: str) -> str:
        """UTC for a workspace that is not named."""
        return self._zones.get(workspace, DEFAULT)


def _is_zone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # every way in which the time zone database says that it has no such zone
        return False
    return True
