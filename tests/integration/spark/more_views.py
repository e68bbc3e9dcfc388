"""The job `views` with further views, those that the environment names: `MORE_VIEWS=regions,names`."""

import os
from collections.abc import Mapping
from dataclasses import replace

from pyspark.sql import Column, functions

from starling_spark.jobs.views import wiring
from starling_spark.jobs.views.__main__ import main
from starling_spark.jobs.views.catalogue import views
from starling_spark.jobs.views.defined.sales_by_product_region import VIEW
from starling_spark.jobs.views.view import View


def regions(json: Mapping[str, Column]) -> Column:
    """Orders, and those with a revenue, by region."""
    revenue = json["properties"]["revenue"].try_cast("DECIMAL(24,6)")
    line = functions.struct(
        json["traits"]["address"]["region"].alias("region"),
        functions.lit(1).cast("DECIMAL(18,0)").alias("orders"),
        functions.coalesce(revenue, functions.lit(0).cast("DECIMAL(24,6)")).alias("revenue"),
    )
    return functions.array(line)


def names(_: Mapping[str, Column]) -> Column:
    """Events by name."""
    return functions.array(
        functions.struct(functions.col("name").alias("event"), functions.lit(1).cast("DECIMAL(18,0)").alias("events"))
    )


OWN_JSON = {"properties": "revenue STRING", "traits": "address STRUCT<region STRING>"}
REGIONS = replace(VIEW, dimensions=("region",), measures=("orders", "revenue"), lines=regions, columns=(), json=OWN_JSON)
MORE = {
    "regions": replace(REGIONS, name="regions"),
    "names": View("names", 1, VIEW.topic, VIEW.record, 6, ("event",), ("events",), names, columns=("name",)),
}

if __name__ == "__main__":
    asked = [MORE[name] for name in os.environ["MORE_VIEWS"].split(",") if name]
    vars(wiring)["views"] = lambda: tuple(sorted((*views(), *asked), key=lambda view: view.name))
    main()
