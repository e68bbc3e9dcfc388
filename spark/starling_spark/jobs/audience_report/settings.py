"""The settings of the job `audience_report`."""

from typing import Annotated

from pydantic import Field

from starling_common.settings import Cassandra
from starling_spark.lakehouse.settings import LakeSettings


class AudienceReportSettings(LakeSettings):
    """Settings of `python -m starling_spark.jobs.audience_report`; the options of a run are on its command line."""

    cassandra: Cassandra
    timezones: Annotated[str, Field(description="workspace=IANA time zone, comma separated; else UTC")] = ""
    report_days_later: Annotated[
        tuple[Annotated[int, Field(ge=1, le=3650)], ...],
        Field(description="days after which retention is computed, as JSON"),
    ] = (1, 7, 14, 30, 60, 90, 180)
    lake_warehouse: Annotated[
        str, Field(description="location of the lake, which retains the feed for longer than its topic; empty: no lake")
    ] = ""
    report_topic_prefix: Annotated[str, Field(description="prefix of the topic names, for installations that share a broker")] = ""
