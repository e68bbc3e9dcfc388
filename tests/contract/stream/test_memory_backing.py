"""The fake stands the contract."""

import pytest

from tests.contract.stream.backing_contract import BackingContract
from tests.contract.stream.memory_backing import MemoryBacking


class TestMemoryBacking(BackingContract):
    @pytest.fixture
    def backing(self) -> MemoryBacking:
        return MemoryBacking()
