"""Pure core: an event of a run -> the JSON object of OpenLineage, by the classes of its client.

Only a process with an address imports it.
"""

from collections.abc import Iterator
from typing import Any, Final

import pyspark
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import (
    DatasetFacet,
    JobFacet,
    OutputDatasetFacet,
    RunFacet,
    dataset_version_dataset,
    error_message_run,
    job_type_job,
    nominal_time_run,
    output_statistics_output_dataset,
    parent_run,
    processing_engine_run,
    schema_dataset,
    sql_job,
    symlinks_dataset,
)
from openlineage.client.serde import Serde

from starling_spark.lineage.datasets import Dataset
from starling_spark.lineage.runs import Event

PRODUCER: Final = "https://starling.dev/spark"
POSITIONS: Final = "starling_positions"
"""The facet of an input topic: the offset of each partition up to which the run has read."""
_POSITIONS_SCHEMA: Final = "https://starling.dev/lineage/1-0-0/PositionsInputDatasetFacet.json"


class EventWriter:
    """Makes the events of the jobs of a namespace. `parent`: the run that started the process, as in the settings."""

    def __init__(self, namespace: str, parent: str | None = None) -> None:
        self._namespace = namespace
        self._parent = parent

    def document(self, event: Event) -> dict[str, Any]:
        """Return the event as a JSON object."""
        made = RunEvent(
            eventType=RunState[event.state.value],
            eventTime=event.at.isoformat(timespec="milliseconds"),
            run=Run(event.run, dict(self._of_run(event))),
            job=Job(self._namespace, event.job.name, dict(_of_job(event))),
            inputs=[InputDataset(*one.place, facets=dict(_of_dataset(one))) for one in event.flow.inputs],
            outputs=[
                OutputDataset(*one.place, facets=dict(_of_dataset(one)), outputFacets=dict(_of_output(one)))
                for one in event.flow.outputs
            ],
            producer=PRODUCER,
        )
        found = Serde.to_dict(made)
        for one, shown in zip(event.flow.inputs, found["inputs"], strict=True):
            if one.positions:
                shown["inputFacets"] = {POSITIONS: _positions(one)}
        return found

    def _of_run(self, event: Event) -> Iterator[tuple[str, RunFacet]]:
        yield (
            "processing_engine",
            processing_engine_run.ProcessingEngineRunFacet(version=pyspark.__version__, name="spark", producer=PRODUCER),
        )
        if event.error is not None:
            yield "errorMessage", error_message_run.ErrorMessageRunFacet(event.error, "PYTHON", producer=PRODUCER)
        if event.nominal_at is not None:
            at = event.nominal_at.isoformat(timespec="milliseconds")
            yield "nominalTime", nominal_time_run.NominalTimeRunFacet(at, producer=PRODUCER)
        if self._parent is not None:
            namespace, job, run = self._parent.rsplit("/", 2)
            parent = parent_run.ParentRunFacet(parent_run.Run(run), parent_run.Job(namespace, job), producer=PRODUCER)
            yield "parent", parent


def _of_job(event: Event) -> Iterator[tuple[str, JobFacet]]:
    kind = "STREAMING" if event.job.is_streaming else "BATCH"
    yield "jobType", job_type_job.JobTypeJobFacet(kind, "SPARK", "JOB", producer=PRODUCER)
    if event.job.sql is not None:
        yield "sql", sql_job.SQLJobFacet(event.job.sql, "spark", producer=PRODUCER)


def _of_dataset(one: Dataset) -> Iterator[tuple[str, DatasetFacet]]:
    if one.version is not None:
        yield "version", dataset_version_dataset.DatasetVersionDatasetFacet(one.version, producer=PRODUCER)
    if one.columns:
        fields = [schema_dataset.SchemaDatasetFacetFields(column.name, column.type) for column in one.columns]
        yield "schema", schema_dataset.SchemaDatasetFacet(fields, producer=PRODUCER)
    if one.table is not None:
        identifier = symlinks_dataset.Identifier(*one.table, type="TABLE")
        yield "symlinks", symlinks_dataset.SymlinksDatasetFacet([identifier], producer=PRODUCER)


def _of_output(one: Dataset) -> Iterator[tuple[str, OutputDatasetFacet]]:
    if one.rows is not None:
        statistics = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(one.rows, producer=PRODUCER)
        yield "outputStatistics", statistics


def _positions(one: Dataset) -> dict[str, Any]:
    partitions = [{"partition": number, "offset": offset} for number, offset in sorted(one.positions.items())]
    return {"_producer": PRODUCER, "_schemaURL": _POSITIONS_SCHEMA, "partitions": partitions}
