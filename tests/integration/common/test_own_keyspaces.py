"""A keyspace of a test's own that another test has used before."""

from contextlib import closing

from starling_common.cassandra.database import Database
from starling_common.testing import own_keyspace
from starling_stream.model.backing_store import PartitionCopy, StateWrite
from starling_stream.state.cassandra import CassandraBackingStore
from tests.conftest import Stack

COPY = PartitionCopy("a-log", 3, 0)


def test_the_tombstones_of_the_test_before_hide_nothing(stack: Stack) -> None:
    with own_keyspace(stack.cassandra) as cassandra, closing(Database(cassandra)) as database:
        store, first = CassandraBackingStore(database, 2), cassandra.keyspace
        store.write(COPY, [StateWrite(b"acme/ada", b"row", 7, None, None)])
        store.begin(COPY._replace(incarnation=1))
        assert store.rows(COPY, [b"acme/ada"]) == {}
    with own_keyspace(stack.cassandra) as cassandra, closing(Database(cassandra)) as database:
        assert cassandra.keyspace == first
        store = CassandraBackingStore(database, 2)
        store.write(COPY, [StateWrite(b"acme/ada", b"row", 1, None, None)])
        assert store.rows(COPY, [b"acme/ada"]) == {b"acme/ada": b"row"}
