"""The command side's stores in the real Cassandra."""

import pytest

from starling_api.definitions.repository import CassandraClaims, CassandraResponses
from starling_common.cassandra.database import Database
from tests.contract.api.claims_contract import AnswersContract, ClaimsContract


class TestCassandraClaims(ClaimsContract):
    @pytest.fixture
    def claims(self, database: Database) -> CassandraClaims:
        return CassandraClaims(database)


class TestCassandraAnswers(AnswersContract):
    @pytest.fixture
    def answers(self, database: Database) -> CassandraResponses:
        return CassandraResponses(database)
