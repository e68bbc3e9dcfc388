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
    made.create()
    try:
        yield made
    finally:
        made.destroy()
