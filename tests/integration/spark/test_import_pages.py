"""The rows of imports in Cassandra, in pages."""

from contextlib import closing

from starling_common.cassandra.database import Database
from starling_common.testing import own_keyspace
from starling_spark.jobs.imports.pages import KnownRow, RowPages
from starling_spark.jobs.imports.store import Place
from tests.conftest import Stack

PLACE = Place("acme", "crm")
ADA, BOB, EVE = b"\x07\x01ada", b"\x07\x01bob", b"\x07\x02eve"
"""Ids: two in a page, and one in another page of the bucket."""
ROW = KnownRow(3, b"digest", sent=True, seen_at_ms=1, user_id="ada", traits=["plan"])


def test_a_page_keeps_the_rows_that_another_run_has_stored(stack: Stack) -> None:
    with own_keyspace(stack.cassandra) as cassandra, closing(Database(cassandra)) as database:
        first = RowPages(database, PLACE)
        assert first.known_rows([ADA, BOB]) == [None, None]
        first.set_rows([(ADA, ROW), (BOB, ROW._replace(traits=["plan", "region"]))])
        second = RowPages(database, PLACE)
        second.set_rows([(BOB, KnownRow(4, b"", sent=False)), (EVE, ROW)])
        found = RowPages(database, PLACE)
        assert found.known_rows([EVE, BOB, ADA]) == [ROW, KnownRow(4, b"", sent=False), ROW]
        assert sorted(found.rows_of_bucket(7)) == [(ADA, ROW), (BOB, KnownRow(4, b"", sent=False)), (EVE, ROW)]
        assert list(found.rows_of_bucket(8)) == []
        assert RowPages(database, Place("acme", "other")).known_rows([ADA]) == [None]
