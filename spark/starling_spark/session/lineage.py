"""Wiring: the events of OpenLineage of a job, from its settings, and those of its streaming queries."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from prometheus_client import CollectorRegistry

from starling_common.telemetry.metrics import Metrics
from starling_spark.kafka.groups import end_offsets
from starling_spark.lineage.redaction import secrets_of
from starling_spark.lineage.runs import OFF, Lineage, RunLineage
from starling_spark.session.running import Running
from starling_spark.session.settings import SparkSettings


@contextmanager
def opened_lineage(settings: SparkSettings, metrics: Metrics | None = None) -> Iterator[Lineage]:
    """Yield the runs of a job, and send what waits at the end. `metrics`: those of the process, if it shows some.

    Raises: ValueError if the client of OpenLineage is not installed.
    """
    given = settings.lineage
    if given.url is None:
        yield OFF
        return
    try:
        from starling_spark.lineage.events import EventWriter  # noqa: PLC0415 - they import an optional package
        from starling_spark.lineage.sending import Sender, transport_of  # noqa: PLC0415
    except ModuleNotFoundError as cause:
        reason = "STARLING_LINEAGE__URL needs the client of OpenLineage: pip install 'starling[lineage]', or unset it"
        raise ValueError(reason) from cause
    dropped = (metrics or Metrics(CollectorRegistry())).counter("starling_lineage_dropped_total")
    sender = Sender(EventWriter(given.namespace, given.parent).document, transport_of(given), dropped)
    try:
        yield Lineage(sender.emit, secrets_of(settings))
    finally:
        sender.close(given.timeout_seconds)


def observed(running: Running, run: RunLineage) -> Running:
    """Return a query whose positions are those of a run too."""

    def moved(progress: str) -> None:
        running.moved(progress)
        run.reached(end_offsets(progress))

    return replace(running, moved=moved)
