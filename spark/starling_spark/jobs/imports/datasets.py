"""Pure core: the source and the target of an import as datasets of its run."""

from starling_common.kafka.topics import LIST_MEMBERSHIP, PRODUCTS
from starling_rules.imports import ImportRequest
from starling_rules.jdbc import SourceError, jdbc_address
from starling_spark.jobs.imports.store import Place
from starling_spark.lineage.datasets import Dataset, database_table, files, kafka_topics
from starling_spark.lineage.runs import JobName

_TOPIC_OF_KIND = {
    "events": "ingest.track",
    "traits": "ingest.identify",
    "accounts": "ingest.group",
    "lists": LIST_MEMBERSHIP,
    "catalog": PRODUCTS,
}


def job_of(place: Place, request: ImportRequest) -> JobName:
    """Return the job of an import, with its query."""
    return JobName(f"imports.{place.workspace}.{place.key}", sql=None if request.jdbc is None else request.jdbc.query)


def inputs_of(request: ImportRequest) -> tuple[Dataset, ...]:
    """Return the file or the directory, or the table of a database; none for a query, whose statement the job has.

    None for an Iceberg table either, of which only the catalog knows the name.
    """
    if request.jdbc is None:
        return (files(request.uri),) if request.source is None else ()
    # In another URL a part before the host may be a password.
    if request.jdbc.table is None or isinstance(jdbc_address(request.uri), SourceError):
        return ()
    return (database_table(request.uri, request.jdbc.table),)


def outputs_of(request: ImportRequest, brokers: str) -> tuple[Dataset, ...]:
    """Return the topic to which the ingest API, for a list the API, or for the catalog the job writes the rows."""
    return kafka_topics(brokers, _TOPIC_OF_KIND[request.kind])
