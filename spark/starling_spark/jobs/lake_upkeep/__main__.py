"""Run once: `python -m starling_spark.jobs.lake_upkeep`. It needs a stopped lake job, or a catalog with several writers."""

import sys

from prometheus_client import CollectorRegistry

from starling_common.telemetry.logs import configure_logs
from starling_common.telemetry.metrics import Metrics
from starling_spark.lakehouse.access import lake_tables, opened, upkeep_of
from starling_spark.lakehouse.settings import LakeSettings
from starling_spark.lakehouse.warehouse_lock import WarehouseInUse
from starling_spark.session.lineage import opened_lineage


def main() -> int:
    """Return 0 when all tables are maintained, 1 when another process has locked the warehouse."""
    settings = LakeSettings()
    configure_logs("lake-upkeep", settings.log_level)
    try:
        with opened(settings) as (_, lake), opened_lineage(settings) as lineage:
            upkeep_of(lake, lake_tables(settings), settings, Metrics(CollectorRegistry()), lineage)()
    except WarehouseInUse as error:
        sys.stderr.write(f"lake-upkeep: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
