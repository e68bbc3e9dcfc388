"""Cassandra fulfils the contract."""

from collections.abc import Iterator

import pytest

from starling_common.cassandra.database import Database
from starling_common.settings import Cassandra
from starling_stream.model.backing_store import BackingStoreUnavailable, PartitionCopy
from starling_stream.state.cassandra import CassandraBackingStore
from tests.conftest import Stack
from tests.contract.stream.backing_store_contract import BackingStoreContract


class TestCassandraBackingStore(BackingStoreContract):
    @pytest.fixture
    def backing_store(self, stack: Stack) -> Iterator[CassandraBackingStore]:
        opened = CassandraBackingStore(Database(stack.cassandra), 4)
        yield opened
        opened.close()

    def test_an_outage_is_raised_as_such(self) -> None:
        nowhere = CassandraBackingStore(Database(Cassandra(contact_points="127.0.0.1", port=1)), 4)
        with pytest.raises(BackingStoreUnavailable):
            nowhere.checkpoint("log", 0)
        with pytest.raises(BackingStoreUnavailable):
            nowhere.rows(PartitionCopy("log", 0, 0), [b"a"])
        nowhere.close()
