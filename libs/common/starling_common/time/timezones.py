"""Pure core: the time zone of each workspace, the default for its segments."""

import re
from collections.abc import Mapping
from typing import Final
from zoneinfo import ZoneInfo

DEFAULT: Final = "UTC"
_ENTRY: Final = re.compile(r"(?P<workspace>[a-z][a-z0-9_-]{0,63})=(?P<zone>[^\s=,]+)")


class Timezones:
    """The time zones of all workspaces."""

    def __init__(self, text: str) -> None:
        """Parse `workspace=zone` pairs, comma separated, with IANA names. Raises: ValueError that names the entry."""
        self._zones: dict[str, str] = {}
        for entry in filter(None, (part.strip() for part in text.split(","))):
            found = _ENTRY.fullmatch(entry)
            if found is None or not _is_zone(found["zone"]):
                raise ValueError(f"{entry!r}: expected workspace=zone with an IANA time zone, such as default=Europe/Berlin")
            self._zones[found["workspace"]] = found["zone"]

    def named(self) -> Mapping[str, str]:
        """Return the configured time zones by workspace."""
        return dict(self._zones)

    def of(self, workspace: str) -> str:
        """Return the time zone of a workspace; UTC if none is configured."""
        return self._zones.get(workspace, DEFAULT)


def _is_zone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # all errors of the time zone database for an unknown zone
        return False
    return True
