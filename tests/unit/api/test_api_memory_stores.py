"""The stores in memory keep the contract that the real ones keep."""

import pytest

from tests.contract.api.claims_contract import AnswersContract, ClaimsContract
from tests.unit.api.memory import MemoryAnswers, MemoryClaims


class TestMemoryClaims(ClaimsContract):
    @pytest.fixture
    def claims(self) -> MemoryClaims:
        return MemoryClaims()


class TestMemoryAnswers(AnswersContract):
    @pytest.fixture
    def answers(self) -> MemoryAnswers:
        return MemoryAnswers()
