"""Fixtures of the stream tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Stack
from tests.integration.stream.rig import Rig


@pytest.fixture
def rig(stack: Stack, tmp_path: Path) -> Iterator[Rig]:
    """Topics of this test's own; its workers are ended and its topics deleted afterwards."""
    made = Rig(stack.brokers, stack.registry_url, tmp_path)
    yield from _in_place(made)


@pytest.fixture
def one_partition(stack: Stack, tmp_path: Path) -> Iterator[Rig]:
    """The same with topics of one partition: a worker has the whole stage or nothing."""
    yield from _in_place(Rig(stack.brokers, stack.registry_url, tmp_path, partitions=1))


@pytest.fixture
def with_backing_store(stack: Stack, tmp_path: Path) -> Iterator[Rig]:
    """The same, with Cassandra as the backing store."""
    yield from _in_place(Rig(stack.brokers, stack.registry_url, tmp_path, stack.cassandra))


def _in_place(made: Rig) -> Iterator[Rig]:
    made.create()
    try:
        yield made
    finally:
        made.destroy()
