"""The rows of a table in the order of their ids."""

from pyspark.sql import SparkSession

from starling_spark.jobs.imports.pages import PAGE_BYTES, row_id
from starling_spark.jobs.imports.sources.frames import TableRows, in_order_of_ids
from starling_spark.jobs.imports.tasks import id_of


def parts_of(spark: SparkSession, rows: list[tuple[str | None, int]], tasks: int) -> list[list[tuple[str | None, int]]]:
    """Return (id, number) of the rows of each partition."""
    frame = spark.createDataFrame(
        [(*row, {"k": "v"}, row[1]) for row in rows], "id string, n int, `STARLING_row_id` map<string,string>, other int"
    )
    ordered = in_order_of_ids(TableRows(frame.repartition(3), {}), "id", id_of, tasks, PAGE_BYTES)
    assert ordered.added == "starling_row_id_"
    return [[(row["id"], row["n"]) for row in part] for part in ordered.frame.rdd.glom().collect()]


def test_a_partition_has_all_rows_of_a_page_in_the_order_of_their_ids(spark: SparkSession) -> None:
    rows: list[tuple[str | None, int]] = [(f"u{number}", number) for number in range(2_000)]
    parts = parts_of(spark, rows, 4)
    assert sorted(row for part in parts for row in part) == sorted(rows)
    ids = [[row_id(str(key)) for key, _ in part] for part in parts]
    assert [sorted(one) for one in ids] == ids
    pages = [{id_[:PAGE_BYTES] for id_ in one} for one in ids]
    assert len(pages) == 4
    assert sum(map(len, pages)) == len(set.union(*pages))


def test_rows_with_the_same_id_have_the_same_order_in_each_run(spark: SparkSession) -> None:
    rows: list[tuple[str | None, int]] = [("ada", number) for number in range(20)] + [(None, 1), (None, 2)]
    assert parts_of(spark, rows, 2) == parts_of(spark, rows[::-1], 2)
