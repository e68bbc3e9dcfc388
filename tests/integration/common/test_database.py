"""The shared session: parallel statements, and no resources retained by completed ones."""

import gc
from collections.abc import Iterator
from uuid import uuid4

import pytest
from cassandra.cluster import ResponseFuture

from starling_common.cassandra.database import Database
from starling_common.cassandra.sessions import DatabaseUnavailable
from tests.conftest import Stack

PUT = "INSERT INTO {{ks}}.{} (bucket, place, value) VALUES (?, ?, ?)"
ROWS = "SELECT place, value FROM {{ks}}.{} WHERE bucket = ?"


@pytest.fixture
def database(stack: Stack) -> Iterator[Database]:
    opened = Database(stack.cassandra)
    yield opened
    opened.close()


@pytest.fixture
def table(database: Database, stack: Stack) -> Iterator[str]:
    name = f"t{uuid4().hex[:10]}"
    database.write(f"CREATE TABLE {{ks}}.{name} (bucket int, place int, value blob, PRIMARY KEY (bucket, place))", ())
    yield name
    database.write(f"DROP TABLE {{ks}}.{name}", ())


def test_more_statements_than_fly_at_once_are_answered_in_their_order(database: Database, table: str) -> None:
    batches = [[(PUT.format(table), (bucket, place, b"%d" % bucket)) for place in range(3)] for bucket in range(200)]
    database.write_batches(batches)
    found = database.read_each(ROWS.format(table), [(bucket,) for bucket in range(201)])
    assert [[row["value"] for row in rows] for rows in found] == [[b"%d" % bucket] * 3 for bucket in range(200)] + [[]]


def test_a_refused_statement_raises(database: Database, table: str) -> None:
    with pytest.raises(DatabaseUnavailable):
        database.write_batches([[(PUT.format(table), (1, 1, b"fine"))], [(PUT.format("nowhere"), (1, 1, b"lost"))]])


def test_what_was_sent_is_let_go_with_the_answer(database: Database, table: str) -> None:
    def work() -> None:
        database.write_batches([[(PUT.format(table), (bucket, 1, b"value"))] for bucket in range(300)])
        database.read_each(ROWS.format(table), [(bucket,) for bucket in range(300)])
        for bucket in range(20):
            database.read(ROWS.format(table), (bucket,))
            assert list(database.pages(ROWS.format(table), (bucket,), 1))

    work()
    gc.collect()
    gc.disable()
    try:
        work()
        assert sum(type(one) is ResponseFuture for one in gc.get_objects()) < 10
    finally:
        gc.enable()
