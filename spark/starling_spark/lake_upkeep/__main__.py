"""Run once: `python -m starling_spark.lake_upkeep`. For catalogs that take commits of several processes, or when the lake rests."""

import sys

from starling_common.logs import configure_logs
from starling_spark.lake.holding import WarehouseInUse
from starling_spark.lake.settings import LakeSettings
from starling_spark.lake.wiring import run_upkeep


def main() -> int:
    """0 when all tables are kept up, 1 when another process holds the warehouse."""
    settings = LakeSettings()
    configure_logs("lake-upkeep", settings.log_level)
    try:
        run_upkeep(settings)
    except WarehouseInUse as error:
        sys.stderr.write(f"lake-upkeep: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
