"""Cassandra stands the contract."""

from collections.abc import Iterator

import pytest

from starling_common.database import Database
from starling_common.settings import Cassandra
from starling_stream.model.backing_store import BackingAway, Place
from starling_stream.state.cassandra import CassandraBacking
from tests.conftest import Stack
from tests.contract.stream.backing_contract import BackingContract


class TestCassandraBacking(BackingContract):
    @pytest.fixture
    def backing(self, stack: Stack) -> Iterator[CassandraBacking]:
        opened = CassandraBacking(Database(stack.cassandra), 4)
        yield opened
        opened.close()

    def test_when_it_is_away_it_says_so(self) -> None:
        nowhere = CassandraBacking(Database(Cassandra(contact_points="127.0.0.1", port=1)), 4)
        with pytest.raises(BackingAway):
            nowhere.standing("log", 0)
        with pytest.raises(BackingAway):
            nowhere.rows(Place("log", 0, 0), [b"a"])
        nowhere.close()
