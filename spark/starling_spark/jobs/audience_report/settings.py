"""What an operator may turn of the job `audience_report`."""

from typing import Annotated

from pydantic import Field

from starling_common.settings import Cassandra
from starling_spark.lakehouse.settings import LakeSettings


class AudienceReportSettings(LakeSettings):
    """Settings of `python -m starling_spark.jobs.audience_report`; what a single run is about is on its command line."""

    cassandra: Cassandra
    timezones: Annotated[str, Field(description="workspace=IANA time zone, comma separated; UTC where nothing is said")] = ""
    report_days_later: Annotated[
        tuple[Annotated[int, Field(ge=1, le=3650)], ...], Field(description="after how many days retention is asked, as JSON")
    ] = (1, 7, 14, 30, 60, 90, 180)
    lake_warehouse: Annotated[str, Field(description="of a lake, which keeps the feed for longer than its topic; empty: none")] = ""
    report_topic_prefix: Annotated[str, Field(description="of the topics' names, where installations share a broker")] = ""
