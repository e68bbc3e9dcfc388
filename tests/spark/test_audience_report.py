"""The audience report as DataFrame in, DataFrame out: no broker, no database."""

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from starling_common.time.instants import parse_instant
from starling_demo.dataset import load_purchases
from starling_demo.expected import END_MS, expected_changes
from starling_spark.history.memberships import CHANGES, membership_changes, stays
from starling_spark.jobs.audience_report.transform import Calendar, days, overlap, retention
from tests.spark.audience import pandas_days, pandas_overlap, pandas_retention

UTC = Calendar(parse_instant("2026-03-10T12:00:00Z"), {})
LATER = (1, 2, 7)


class Feed:
    """Records as the segmenter would write them: the sequence grows by one for each user and segment."""

    def __init__(self) -> None:
        self.rows: list[tuple[Any, ...]] = []
        self._sequences: dict[tuple[str, str], int] = {}

    def add(self, user: str, segment: str, *instants: str, cause: str = "EVENT", workspace: str = "w") -> "Feed":
        """In at the first instant, out at the second, and so on."""
        for instant in instants:
            sequence = self._sequences[user, segment] = self._sequences.get((user, segment), 0) + 1
            status = "ENTERED" if sequence % 2 else "EXITED"
            event_id = f"{workspace} {user} {segment} {sequence}"
            self.rows.append((event_id, workspace, segment, user, status, sequence, parse_instant(instant), cause))
        return self

    def without(self, sequence: int) -> "Feed":
        """As if these records were not kept any more."""
        self.rows = [row for row in self.rows if row[5] != sequence]
        return self


def frame(spark: SparkSession, rows: Iterable[tuple[Any, ...]]) -> DataFrame:
    return spark.createDataFrame(list(rows), CHANGES)


def by_day(spark: SparkSession, feed: Feed, calendar: Calendar = UTC) -> dict[tuple[str, str], tuple[int, int, int]]:
    """(segment, day) -> (size, entries, exits)."""
    rows = days(membership_changes(frame(spark, feed.rows), calendar.until_ms), calendar).collect()
    return {(row["segment_key"], str(row["day"])): (row["size"], row["entries"], row["exits"]) for row in rows}


def still_in(spark: SparkSession, feed: Feed) -> dict[tuple[str, int], tuple[int, int]]:
    """(day, days later) -> (entered, still in)."""
    rows = retention(stays(membership_changes(frame(spark, feed.rows), UTC.until_ms)), UTC, LATER).collect()
    return {(str(row["day"]), row["days_later"]): (row["entered"], row["still"]) for row in rows}


@pytest.mark.long
def test_every_day_has_a_row_also_those_on_which_nothing_happens(spark: SparkSession) -> None:
    feed = Feed().add("ann", "s", "2026-03-06T00:00:00Z", "2026-03-08T23:59:59.999Z").add("bob", "s", "2026-03-06T23:59:59.999Z")
    feed.add("cat", "s", "2026-03-10T12:00:00Z").add("dan", "s", "2026-03-10T12:00:00.001Z")
    assert by_day(spark, feed) == {
        ("s", "2026-03-06"): (2, 2, 0),
        ("s", "2026-03-07"): (2, 0, 0),
        ("s", "2026-03-08"): (1, 0, 1),
        ("s", "2026-03-09"): (1, 0, 0),
        ("s", "2026-03-10"): (2, 1, 0),
    }


@pytest.mark.long
def test_in_and_out_on_one_day_is_an_entry_and_an_exit_and_no_size(spark: SparkSession) -> None:
    feed = Feed().add("ann", "s", "2026-03-08T01:00:00Z", "2026-03-08T02:00:00Z", "2026-03-08T03:00:00Z", "2026-03-08T04:00:00Z")
    assert by_day(spark, feed)["s", "2026-03-08"] == (0, 2, 2)
    assert still_in(spark, feed) == {("2026-03-08", 1): (1, 0)}


@pytest.mark.long
def test_a_record_that_is_there_twice_counts_once(spark: SparkSession) -> None:
    feed = Feed().add("ann", "s", "2026-03-08T01:00:00Z", "2026-03-09T01:00:00Z")
    once = by_day(spark, feed)
    feed.rows += [feed.rows[0], *feed.rows]
    assert by_day(spark, feed) == once
    assert once["s", "2026-03-09"] == (0, 0, 1)


def test_an_archived_segment_has_no_members_and_states_the_reason(spark: SparkSession) -> None:
    feed = Feed().add("ann", "s", "2026-03-07T00:00:00Z").add("bob", "s", "2026-03-07T00:00:00Z")
    for user in ("ann", "bob"):
        feed.add(user, "s", "2026-03-08T00:00:00Z", cause="DEFINITION")
    turned = membership_changes(frame(spark, feed.rows), UTC.until_ms)
    rows = {str(row["day"]): row for row in days(turned, UTC).collect()}
    archived = rows["2026-03-08"]
    assert (archived["size"], archived["exits"], archived["exits_by_definition"]) == (0, 2, 2)
    assert (rows["2026-03-07"]["entries_by_definition"], rows["2026-03-10"]["size"]) == (0, 0)
    assert overlap(stays(turned)).count() == 0


@pytest.mark.long
def test_records_that_are_not_kept_any_more_are_counted_and_do_not_break_sizes(spark: SparkSession) -> None:
    feed = Feed().add("ann", "s", "2026-03-06T00:00:00Z", "2026-03-07T00:00:00Z", "2026-03-08T00:00:00Z", "2026-03-09T00:00:00Z")
    feed.add("bob", "s", "2026-03-08T00:00:00Z")
    first_gone = Feed()
    first_gone.rows = [row for row in feed.rows if row[:1] != ("w ann s 1",)]
    assert by_day(spark, first_gone)["s", "2026-03-07"] == (0, 0, 1)  # who leaves was in
    exit_gone = Feed()
    exit_gone.rows = [row for row in feed.rows if row[:1] != ("w ann s 2",)]
    assert by_day(spark, exit_gone)["s", "2026-03-08"] == (2, 1, 0)  # that ann comes in again is no second entry
    assert by_day(spark, exit_gone)["s", "2026-03-09"] == (1, 0, 1)
    missing = membership_changes(frame(spark, first_gone.rows), UTC.until_ms).groupBy().sum("missing").collect()
    assert missing[0][0] == 1


def test_time_never_goes_back_along_the_sequence(spark: SparkSession) -> None:
    feed = Feed().add("ann", "s", "2026-03-08T00:00:00Z", "2026-03-07T00:00:00Z")
    assert by_day(spark, feed)["s", "2026-03-08"] == (0, 1, 1)


@pytest.mark.parametrize(
    ("zone", "expected"),
    [
        # 29 March 2026 has 23 hours in Berlin: it ends at 22:00 UTC and began at 23:00 UTC of the day before.
        ("Europe/Berlin", {"2026-03-29": (2, 2, 0), "2026-03-30": (3, 1, 0)}),
        ("UTC", {"2026-03-28": (1, 1, 0), "2026-03-29": (3, 2, 0), "2026-03-30": (3, 0, 0)}),
    ],
)
def test_a_day_is_one_of_the_workspaces_time_zone(
    spark: SparkSession, zone: str, expected: dict[str, tuple[int, int, int]]
) -> None:
    calendar = Calendar(parse_instant("2026-03-30T12:00:00Z"), {"w": zone, "other": "Asia/Tokyo"})
    feed = Feed().add("ann", "s", "2026-03-28T23:00:00Z").add("bob", "s", "2026-03-29T21:59:59.999Z")
    feed.add("cat", "s", "2026-03-29T22:00:00Z")
    assert by_day(spark, feed, calendar) == {("s", day): numbers for day, numbers in expected.items()}


def test_retention_asks_only_for_days_that_are_over(spark: SparkSession) -> None:
    feed = Feed().add("ann", "s", "2026-03-01T05:00:00Z", "2026-03-02T05:00:00Z", "2026-03-03T05:00:00Z")
    feed.add("bob", "s", "2026-03-01T06:00:00Z").add("cat", "s", "2026-03-09T06:00:00Z")
    assert still_in(spark, feed) == {
        ("2026-03-01", 1): (2, 1),
        ("2026-03-01", 2): (2, 2),  # ann was out in between
        ("2026-03-01", 7): (2, 2),
        ("2026-03-03", 1): (1, 1),
        ("2026-03-03", 2): (1, 1),
    }


def test_overlap_is_of_the_people_who_are_in_at_the_end(spark: SparkSession) -> None:
    morning, later = "2026-03-08T00:00:00Z", "2026-03-09T00:00:00Z"
    feed = Feed().add("ann", "s", morning).add("ann", "t", morning).add("bob", "s", morning).add("bob", "t", morning, later)
    feed.add("ann", "u", morning, workspace="other")
    rows = overlap(stays(membership_changes(frame(spark, feed.rows), UTC.until_ms))).collect()
    assert {(row["workspace"], row["segment_key"], row["other_key"]): row["users"] for row in rows} == {
        ("w", "s", "s"): 2,
        ("w", "s", "t"): 1,
        ("w", "t", "s"): 1,
        ("w", "t", "t"): 1,
        ("other", "u", "u"): 1,
    }


@pytest.mark.long
def test_the_report_of_real_purchases_is_that_of_pandas(spark: SparkSession) -> None:
    changes = expected_changes(load_purchases())
    feed = [
        (f"{user} {key} {number}", "w", key, user, status, number, at, "EVENT")
        for key, of_users in changes.items()
        for user, of_user in of_users.items()
        for number, (status, at) in enumerate(of_user, 1)
    ]
    calendar = Calendar(END_MS, {})
    columns = dict(zip(CHANGES.fieldNames(), map(list, zip(*feed, strict=True)), strict=True))
    turned = membership_changes(spark.createDataFrame(pa.table(columns)), END_MS).cache()
    stayed = stays(turned).cache()
    found_days = {
        (row["segment_key"], str(row["day"])): (row["size"], row["entries"], row["exits"])
        for row in days(turned, calendar).collect()
    }
    found_retention = {
        (row["segment_key"], str(row["day"]), row["days_later"]): (row["entered"], row["still"])
        for row in retention(stayed, calendar, (1, 30, 180)).collect()
    }
    found_overlap = {(row["segment_key"], row["other_key"]): row["users"] for row in overlap(stayed).collect()}
    turned.unpersist()
    stayed.unpersist()
    assert len(feed) > 100_000
    assert found_days == pandas_days(changes, END_MS)
    assert found_retention == pandas_retention(changes, END_MS, (1, 30, 180))
    assert found_overlap == pandas_overlap(changes)
