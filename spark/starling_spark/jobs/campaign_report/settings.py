"""The settings of the job `campaign_report`."""

from typing import Annotated

from pydantic import Field

from starling_spark.lakehouse.settings import LakeSettings


class CampaignReportSettings(LakeSettings):
    """Settings of `python -m starling_spark.jobs.campaign_report`; the options of a run are on its command line."""

    lake_warehouse: Annotated[
        str, Field(description="location of the lake, which keeps progress for longer than its topic; empty: no lake")
    ] = ""
    report_topic_prefix: Annotated[str, Field(description="prefix of the topic names, for installations that share a broker")] = ""
