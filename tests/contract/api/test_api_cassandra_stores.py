"""The command side's stores in the real Cassandra."""

import uuid

import pytest

from starling_api.definitions.repository import CassandraClaims, CassandraDefinitions, CassandraResponses
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


FOREIGN = ("", "[]", "null", "{}", '{"key": "another", "name": "a"}', '{"key": "a", "name": 5}', '{"key": "a", "tags": 5}')
INSERT = (
    "INSERT INTO {ks}.definitions (workspace, kind, key, version, status, document, actor, recorded_at_micros, created_at_micros) "
    "VALUES (?, 'segment', 'a', 1, 'ACTIVE', ?, 'test', 1, 1)"
)


@pytest.mark.parametrize("document", [*FOREIGN, '{"key": "a", "name": "good"}'])
def test_a_document_of_a_foreign_producer_is_no_definition(database: Database, document: str) -> None:
    workspace = f"foreign-{uuid.uuid4().hex[:8]}"
    database.write(INSERT, (workspace, document))
    found = CassandraDefinitions(database)
    known = found.definition(workspace, "segment", "a")
    assert (known is not None) == ("good" in document)
    assert [one.key for one in found.definitions(workspace, "segment")] == (["a"] if known is not None else [])
