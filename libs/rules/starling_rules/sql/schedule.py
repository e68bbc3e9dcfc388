"""Pure core: schedules of statements in SQL and of imports: five fields of cron, in a time zone.

A time that the change to summer time skips fires right after the change, and a repeated one fires once, as in Debian's cron.
"""

from datetime import UTC, datetime
from typing import Final
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

MAX_CHARACTERS: Final = 100
_FIELDS: Final = 5


def schedule_error(schedule: object) -> str | None:
    """Return why it is no schedule; None if it is one that fires."""
    if not isinstance(schedule, str) or len(schedule) > MAX_CHARACTERS or len(schedule.split()) != _FIELDS:
        return f"it is no text of {_FIELDS} fields"
    try:
        found = next(CronSim(schedule, datetime(2000, 1, 1, tzinfo=UTC)), None)
    except CronSimError as error:
        return str(error).lower()
    return "it never fires" if found is None else None


def is_timezone(name: object) -> bool:
    """Return whether it is the IANA name of a time zone."""
    try:
        ZoneInfo(name if isinstance(name, str) and name.isprintable() else "")
    except (KeyError, ValueError, OSError):  # all errors of the time zone database for an unknown zone
        return False
    return True


def next_run_ms(schedule: str, timezone: str, after_ms: int) -> int:
    """Return the first time of the schedule after an instant. Units: epoch ms. The schedule has no `schedule_error`."""
    after = datetime.fromtimestamp(after_ms / 1000, UTC).astimezone(ZoneInfo(timezone))
    return int(next(CronSim(schedule, after)).timestamp() * 1000)
