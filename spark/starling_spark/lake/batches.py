"""Adapter: one micro-batch into the lake, exactly once.

Spark repeats a micro-batch that was killed, and reads from the beginning when its checkpoint is lost. Neither matters
here: a record goes into a table only if its offset lies at or after the table's own position, and the position moves in
the very commit that brings the rows. Iceberg's own streaming sink leaves out a repeated batch by the query's id and the
batch's number; it forgets both with the checkpoint, and writes to one table alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark import StorageLevel
from pyspark.sql import DataFrame, types

from starling_common.logs import log
from starling_common.wire import Registry, RegistryUnavailable
from starling_spark.codec import Wire, agree_on_newest
from starling_spark.lake.iceberg import Lake
from starling_spark.lake.positions import Place, Span, after, is_in, of_topics, partly_in
from starling_spark.lake.tables import QUARANTINE, QUARANTINE_COLUMNS, LakeTable
from starling_spark.lake.transform import beyond, columns, read, refused, rows, spans

_QUARANTINE_BY = ("hours(origin_timestamp)", "origin_topic")


@dataclass(frozen=True, slots=True)
class Source:
    """Where the schemas of the topics are looked up."""

    registry: Registry
    url: str


@dataclass(frozen=True, slots=True)
class Opened:
    """The tables as they are for one batch: what each topic carries by now, and the columns that each table has."""

    wire: Wire
    columns: Mapping[str, types.StructType]


class LakeWriter:
    """Writes micro-batches. `tables`: all that there are beside the quarantine."""

    def __init__(self, lake: Lake, tables: tuple[LakeTable, ...], source: Source) -> None:
        self._lake = lake
        self._tables = tables
        self._source = source
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
            self._opened = Opened(wire, there)
        return self._opened

    def write(self, batch: DataFrame) -> dict[str, int]:
        """Rows that each table got. Raises: what Spark, Iceberg and the registry raise; the batch may then be repeated."""
        opened = self.open()
        batch = batch.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            there = spans(batch)
            written: dict[str, int] = {}
            doubtful: list[LakeTable] = []
            for table in self._tables:
                own = of_topics(there, table.topics)
                if own:
                    written[table.name], is_whole = self._write_table(table, batch, own, opened)
                    doubtful += [] if is_whole else [table]
            if doubtful:
                written[QUARANTINE] = self._quarantine(doubtful, batch, there, opened)
            return written
        finally:
            batch.unpersist()

    def _write_table(self, table: LakeTable, batch: DataFrame, own: Mapping[Place, Span], opened: Opened) -> tuple[int, bool]:
        """How many rows, and whether they are certainly all that the batch has for this table."""
        position = self._lake.position(table.name)
        if is_in(position, own):
            return 0, False
        known = partly_in(position, own)
        there = opened.columns[table.name]
        found = read(beyond(batch, known), table, opened.wire, there)
        count = self._lake.append(table.name, rows(found, there), after(position, own))
        return count, not known and count == sum(span.records for span in own.values())

    def _quarantine(self, tables: list[LakeTable], batch: DataFrame, there: Mapping[Place, Span], opened: Opened) -> int:
        own = of_topics(there, [topic for table in tables for topic in table.topics])
        position = self._lake.position(QUARANTINE)
        if is_in(position, own):
            return 0
        left = beyond(batch, partly_in(position, own))
        first, *others = [refused(read(left, table, opened.wire, opened.columns[table.name])) for table in tables]
        for other in others:
            first = first.unionByName(other)
        return self._lake.append(QUARANTINE, first, after(position, own))
