"""The settings of the lake's jobs."""

from typing import Annotated

from pydantic import Field, SecretStr

from starling_spark.session.settings import SparkSettings


class LakeSettings(SparkSettings):
    """Settings of `python -m starling_spark.jobs.lake` and `python -m starling_spark.jobs.lake_upkeep`."""

    lake_warehouse: Annotated[
        str,
        Field(
            min_length=1,
            description="location of the tables: a directory, or a URI such as s3a://bucket/lake; its name at a catalog service",
        ),
    ]
    lake_catalog: Annotated[
        dict[str, str], Field(description="properties of Iceberg's catalog, as JSON; the default catalog needs only the warehouse")
    ] = {"type": "hadoop"}
    lake_catalog_secrets: Annotated[
        dict[str, SecretStr],
        Field(description="more properties of the catalog, as JSON, which are secret: jdbc.password, credential, token"),
    ] = {}
    lake_namespace: Annotated[
        str, Field(pattern="^[a-z][a-z0-9_]{0,62}$", description="namespace of the tables in the catalog")
    ] = "starling"
    lake_trigger_seconds: Annotated[
        float, Field(gt=0, le=86_400, description="shortest time between micro-batches; a longer one writes fewer, larger files")
    ] = 10.0
    lake_batch_records: Annotated[
        int, Field(ge=100, description="maximum of records in one micro-batch, which a restart after a kill repeats")
    ] = 1_000_000
    lake_stop_seconds: Annotated[
        float, Field(gt=0, description="maximum time of a stop in which the current micro-batch can finish")
    ] = 25.0
    lake_group: Annotated[str, Field(description="consumer group in which the job commits its offsets")] = "starling-lake"
    lake_topic_prefix: Annotated[str, Field(description="prefix of the topic names, for installations that share a broker")] = ""
    lake_upkeep_minutes: Annotated[
        float,
        Field(ge=0, description="time between two runs of maintenance in the streaming job; 0: none"),
    ] = 60.0
    lake_compact_files: Annotated[
        int, Field(ge=5, description="maximum of small files of a table that one run of maintenance rewrites")
    ] = 10_000
    lake_compact_mb: Annotated[int, Field(ge=1, le=4096, description="size in MB of the files that maintenance writes")] = 512
    lake_keep_hours: Annotated[float, Field(gt=0, description="retention of old snapshots")] = 72.0
    lake_tag_hours: Annotated[
        float,
        Field(gt=0, description="maximum time for which a run keeps the snapshots that it reads; a killed run keeps them as long"),
    ] = 24.0
    lake_orphan_hours: Annotated[
        float, Field(ge=24, description="age at which a file without a snapshot is deleted; a killed driver leaves such files")
    ] = 72.0
