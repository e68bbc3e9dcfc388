"""Adapter: one micro-batch into the lake, exactly once.

Spark repeats a micro-batch that was killed, and reads from the earliest offset when its checkpoint is lost. Neither duplicates
rows: a record is appended only if its offset is at or after the table's position, and the position is part of the commit that
appends the rows. Iceberg's streaming sink detects a repeated batch by the query's id and the batch's number; both are lost with
the checkpoint, and it writes to one table only.
"""

from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame

from starling_common.telemetry.logs import log
from starling_common.wire import Registry, RegistryUnavailable
from starling_spark.jobs.lake.by_files import Counted, Reread, by_files
from starling_spark.jobs.lake.by_rows import by_rows
from starling_spark.jobs.lake.transform import columns
from starling_spark.kafka.codec import newest_schemas
from starling_spark.lakehouse.iceberg import Lake
from starling_spark.lakehouse.schema.opened import Opened
from starling_spark.lakehouse.schema.tables import QUARANTINE, QUARANTINE_COLUMNS, LakeTable
from starling_spark.lakehouse.stores.translation import StoreUnknown

_QUARANTINE_BY = ("hours(origin_timestamp)", "origin_topic")
_CURE: Final = (
    "the job goes on, with about three times the processor time; change the setting, and restart the job, or accept it "
    "(docs/how-to/spark/lake.md, Writing of files)"
)


@dataclass(frozen=True, slots=True)
class Source:
    """The schema registry of the topics."""

    registry: Registry
    url: str


class LakeWriter:
    """Writes micro-batches to `tables` and to the quarantine.

    The workers write the files, unless they cannot write to the store of the lake. `reread` reads refused records with their
    headers; it is needed when the micro-batches have none.
    """

    def __init__(
        self,
        lake: Lake,
        tables: tuple[LakeTable, ...],
        source: Source,
        reread: Reread | None = None,
        counted: Counted = lambda _: None,
    ) -> None:
        self._lake = lake
        self._tables = tables
        self._source = source
        self._reread = reread
        self._counted = counted
        self._opened: Opened | None = None
        self._workers_write: bool | None = None

    def open(self) -> Opened:
        """Request the topics' schemas, create or extend the tables, and return the schemas and columns.

        One request a batch, after its records were written: no writer of the batch has a newer schema than the answer.
        While the registry is unavailable the last answer is used. A record with a newer schema then fails the batch, because
        the worker cannot request its id.
        Raises: SchemaMissing, SchemaConflict; RegistryUnavailable before the first answer.
        """
        topics = [(topic, table.record) for table in self._tables for topic in table.topics]
        try:
            wire = newest_schemas(self._source.registry, self._source.url, topics)
        except RegistryUnavailable as error:
            if self._opened is None:
                raise
            log(__name__).warning("schemas_not_refreshed", error=str(error))
            return self._opened
        if self._opened is None or self._opened.wire != wire:
            self._lake.ensure(QUARANTINE, QUARANTINE_COLUMNS, _QUARANTINE_BY, ())
            columns_of = {
                table.name: self._lake.ensure(table.name, columns(table, wire), table.partitioning, table.sorted_by)
                for table in self._tables
            }
            if self._workers_write is None:
                # The query reads headers or not for as long as it runs, so the decision is made once.
                self._workers_write = self._check_stores()
            self._opened = Opened(wire, columns_of, self._workers_write)
        return self._opened

    def write(self, batch: DataFrame) -> dict[str, int]:
        """Write a micro-batch, and return the number of rows by table.

        Raises: errors of Spark, Iceberg and the registry; the batch may be repeated then.
        """
        opened = self.open()
        if not opened.workers_write:
            return by_rows(self._lake, self._tables, batch, opened, self._counted)
        return by_files(self._lake, self._tables, batch, opened, self._reread or (lambda _: batch), self._counted)

    def _check_stores(self) -> bool:
        """Return whether workers can write the files of all tables. The reason why not is logged."""
        try:
            for name in (*(table.name for table in self._tables), QUARANTINE):
                self._lake.check_store(name)
        except (StoreUnknown, OSError) as error:
            log(__name__).warning("lake_files_by_spark", reason=str(error), cure=_CURE)
            return False
        return True
