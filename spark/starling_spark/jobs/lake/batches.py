"""Adapter: one micro-batch into the lake, exactly once.

Spark repeats a micro-batch that was killed, and reads from the beginning when its checkpoint is lost. Neither matters
here: a record goes into a table only if its offset lies at or after the table's own position, and the position moves in
the very commit that brings the rows. Iceberg's own streaming sink leaves out a repeated batch by the query's id and the
batch's number; it forgets both with the checkpoint, and writes to one table alone.
"""

from dataclasses import dataclass
from urllib.parse import urlsplit

from pyspark.sql import DataFrame

from starling_common.logs import log
from starling_common.wire import Registry, RegistryUnavailable
from starling_spark.jobs.lake.by_files import Again, by_files
from starling_spark.jobs.lake.by_rows import by_rows
from starling_spark.jobs.lake.transform import columns
from starling_spark.kafka.codec import agree_on_newest
from starling_spark.lakehouse.iceberg import Lake
from starling_spark.lakehouse.opened import Opened
from starling_spark.lakehouse.tables import QUARANTINE, QUARANTINE_COLUMNS, LakeTable

_QUARANTINE_BY = ("hours(origin_timestamp)", "origin_topic")


@dataclass(frozen=True, slots=True)
class Source:
    """Where the schemas of the topics are looked up."""

    registry: Registry
    url: str


class LakeWriter:
    """Writes micro-batches. `tables`: all that there are beside the quarantine.

    In a directory, which every worker reaches, the workers write the files themselves. `again`: reads records once more,
    where the micro-batches come without headers.
    """

    def __init__(self, lake: Lake, tables: tuple[LakeTable, ...], source: Source, again: Again | None = None) -> None:
        self._lake = lake
        self._tables = tables
        self._source = source
        self._again = again
        self._opened: Opened | None = None

    def open(self) -> Opened:
        """Ask what the topics carry, and make or grow the tables after it.

        Asked once a batch, after its records were there: whatever wrote them, its schema is not newer than the answer.
        While the registry is away the last answer holds: a record of a newer schema names an id that no worker knows, and
        fails the batch, for that id cannot be asked for either.
        Raises: SchemaMissing, SchemaConflict; RegistryUnavailable before the first answer.
        """
        topics = [(topic, table.record) for table in self._tables for topic in table.topics]
        try:
            wire = agree_on_newest(self._source.registry, self._source.url, topics)
        except RegistryUnavailable as error:
            if self._opened is None:
                raise
            log(__name__).warning("schemas_not_asked_for", error=str(error))
            return self._opened
        if self._opened is None or self._opened.wire != wire:
            self._lake.ensure(QUARANTINE, QUARANTINE_COLUMNS, _QUARANTINE_BY, ())
            there = {
                table.name: self._lake.ensure(table.name, columns(table, wire), table.partitioning, table.sorted_by)
                for table in self._tables
            }
            self._opened = Opened(wire, there, urlsplit(self._lake.location(QUARANTINE)).scheme in {"", "file"})
        return self._opened

    def write(self, batch: DataFrame) -> dict[str, int]:
        """Rows that each table got. Raises: what Spark, Iceberg and the registry raise; the batch may then be repeated."""
        opened = self.open()
        if not opened.is_directory:
            return by_rows(self._lake, self._tables, batch, opened)
        return by_files(self._lake, self._tables, batch, opened, self._again or (lambda _: batch))
