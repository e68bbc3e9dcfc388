"""Pure core: the destination of an export as a dataset of its run."""

from starling_spark.lineage.datasets import Dataset, database_table, files, kafka_topics, search_index
from starling_spark.sinks.catalogue import Destination


def output_of(destination: Destination) -> Dataset:
    """Return the dataset. No name has the user or the password of the destination."""
    table = destination.table or ""
    match destination.sink:
        case "kafka":
            return kafka_topics(destination.brokers, destination.to)[0]
        case "postgres":
            return database_table(destination.to, table)
        case "opensearch":
            return search_index(destination.to, table)
        case _:
            return files(destination.to)
