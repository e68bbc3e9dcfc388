"""Adapter: the counts of campaigns in Cassandra. Every method may raise DatabaseUnavailable."""

from collections.abc import Sequence
from typing import Final

from starling_api.reports.campaign_report import CountedArm, CountedDay
from starling_campaigns.lift import Arm
from starling_common.cassandra.database import Database
from starling_common.cassandra.read_models import ARM_CONVERTED, ARM_PEOPLE

_DAYS: Final = (
    "SELECT day, version, variant, counts, value FROM {ks}.campaign_days "
    "WHERE workspace = ? AND campaign = ? AND day >= ? AND day <= ?"
)
_ARMS: Final = "SELECT variant, held_out, counts, value FROM {ks}.campaign_arms WHERE workspace = ? AND campaign = ?"


class CassandraCampaignCounts:
    """Reads the tables of the projector."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def days(self, workspace: str, campaign: str, first: int, last: int) -> Sequence[CountedDay]:
        """Return one row for each source partition."""
        return [CountedDay(**row) for row in self._database.read(_DAYS, (workspace, campaign, first, last))]

    def arms(self, workspace: str, campaign: str) -> Sequence[CountedArm]:
        """Return one row for each source partition."""
        return [
            CountedArm(
                row["variant"],
                row["held_out"],
                Arm(row["counts"].get(ARM_PEOPLE, 0), row["counts"].get(ARM_CONVERTED, 0), row["value"]),
            )
            for row in self._database.read(_ARMS, (workspace, campaign))
        ]
