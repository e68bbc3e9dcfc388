"""Core: the report of a campaign: its funnel by day, version and variant, and the lift of its variants."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, Final, NamedTuple, Protocol

from starling_api.http.errors import BadRequest
from starling_campaigns.lift import Arm, lift
from starling_common.cassandra.read_models import HELD_OUT_CONVERTED, SUPPRESSED_PREFIX

Document = dict[str, Any]

STEPS: Final[Mapping[str, str]] = {
    "requested": "REQUESTED",
    "sent": "SENT",
    "delivered": "DELIVERED",
    "opened": "OPENED",
    "clicked": "CLICKED",
    "bounced": "BOUNCED",
    "complained": "COMPLAINED",
    "unsubscribed": "UNSUBSCRIBED",
    "failed": "FAILED",
    "held_out": "HELD_OUT",
    "converted": "CONVERTED",
    "held_out_converted": HELD_OUT_CONVERTED,
}
"""Field of a row -> the name of its count."""
_EPOCH: Final = date(1970, 1, 1)
_FIRST_DAY: Final = (date.min - _EPOCH).days
_LAST_DAY: Final = (date.max - _EPOCH).days


class CountedDay(NamedTuple):
    """The counts of one day, version, variant and source partition. `day`: days since 1970-01-01; `variant`: empty for none."""

    day: int
    version: int
    variant: str
    counts: Mapping[str, int]
    value: float


class CountedArm(NamedTuple):
    """The people of one variant in one source partition who were written to, or held out, by their first message."""

    variant: str
    held_out: bool
    arm: Arm


class CampaignCounts(Protocol):
    """The counts of the projector. Every method may raise DatabaseUnavailable."""

    def days(self, workspace: str, campaign: str, first: int, last: int) -> Sequence[CountedDay]:
        """Return the counts of the days from `first` to `last`, both included, in any order."""

    def arms(self, workspace: str, campaign: str) -> Sequence[CountedArm]:
        """Return the arms of the campaign, in any order."""


@dataclass(frozen=True, slots=True)
class ReportedDays:
    """The days of a requested report. `since`, `until`: ISO 8601 as it was sent, `until` exclusive; None: no bound."""

    since: str | None = None
    until: str | None = None

    def bounds(self) -> tuple[int, int]:
        """Return the first and the last day, in days since 1970-01-01. Raises: BadRequest."""
        last = _LAST_DAY if self.until is None else _day("to", self.until) - 1
        return (_FIRST_DAY if self.since is None else _day("from", self.since)), last


def campaign_report(counts: CampaignCounts, workspace: str, campaign: str, days: ReportedDays) -> Document:
    """Return the report of a campaign that exists. The lift covers all days. Raises: BadRequest."""
    found = counts.days(workspace, campaign, *days.bounds())
    return {"campaign": campaign, "funnel": list(_funnel(found)), "lift": list(_lift(counts.arms(workspace, campaign)))}


def _funnel(found: Sequence[CountedDay]) -> Iterator[Document]:
    sums: dict[tuple[int, int, str], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    values: dict[tuple[int, int, str], float] = defaultdict(float)
    for row in found:
        key = row.day, row.version, row.variant
        values[key] += row.value
        for name, count in row.counts.items():
            sums[key][name] += count
    for key in sorted(sums):
        day, version, variant = key
        yield {
            "version": version,
            "variant": variant or None,
            "day": (_EPOCH + timedelta(days=day)).isoformat(),
            **{field: sums[key].get(name, 0) for field, name in STEPS.items()},
            "value": values[key],
            "suppressed": {
                name.removeprefix(SUPPRESSED_PREFIX): count
                for name, count in sorted(sums[key].items())
                if name.startswith(SUPPRESSED_PREFIX)
            },
        }


def _lift(found: Sequence[CountedArm]) -> Iterator[Document]:
    arms: dict[tuple[str | None, bool], Arm] = defaultdict(Arm)
    for one in found:
        for variant in (one.variant, None):
            key = variant, one.held_out
            arms[key] = arms[key].plus(one.arm)
    for variant in (None, *sorted({one.variant for one in found})):
        written_to, held_out = arms[variant, False], arms[variant, True]
        yield {
            "variant": variant,
            **lift(written_to, held_out)._asdict(),
            "written_to": {"people": written_to.people, "converted": written_to.converted},
            "held_out": {"people": held_out.people, "converted": held_out.converted},
        }


def _day(name: str, text: str) -> int:
    try:
        return (date.fromisoformat(text) - _EPOCH).days
    except ValueError as error:
        raise BadRequest("bad_day", f"{name}: {text[:40]!r} is not a day such as 2026-01-31") from error
