"""The settings of the job `sql_traits`."""

from typing import Annotated

from pydantic import Field

from starling_common.kafka.topics import AGGREGATES, PRODUCTS
from starling_common.settings import Cassandra
from starling_spark.lakehouse.settings import LakeSettings


class SqlTraitsSettings(LakeSettings):
    """Settings of `python -m starling_spark.jobs.sql_traits`."""

    cassandra: Cassandra
    checkpoint_dir: Annotated[str, Field(description="has no effect: Cassandra and the lake contain the progress of this job")] = (
        "."
    )
    sql_traits_max_bytes: Annotated[
        int, Field(ge=1, description="maximum of bytes that a statement reads, as its plan estimates; a larger one is refused")
    ] = 100_000_000_000
    sql_traits_max_users: Annotated[
        int, Field(ge=1, description="maximum of users with a value; a statement with more of them is refused")
    ] = 20_000_000
    sql_views_max_rows: Annotated[
        int, Field(ge=1, description="maximum of rows of a view in SQL; a statement with more of them is refused")
    ] = 100_000_000
    sql_traits_max_minutes: Annotated[
        float, Field(gt=0, le=1_440, description="maximum time of one statement; a longer one fails")
    ] = 10.0
    sql_checks_keep_days: Annotated[
        int, Field(ge=1, le=36_500, description="how long the outcome of checks stays in the table quality_results")
    ] = 90
    sql_traits_aggregates_topic: Annotated[str, Field(description="topic of the computed values")] = AGGREGATES
    sql_traits_products_topic: Annotated[str, Field(description="topic of the product catalog")] = PRODUCTS
    sql_traits_dead_letters_topic: Annotated[str, Field(description="topic of the dead letters")] = "profiles.dlq"
