"""The fake fulfils the contract."""

import pytest

from tests.contract.stream.backing_store_contract import BackingStoreContract
from tests.contract.stream.memory_backing_store import MemoryBackingStore


class TestMemoryBackingStore(BackingStoreContract):
    @pytest.fixture
    def backing_store(self) -> MemoryBackingStore:
        return MemoryBackingStore()
