"""A `profiles` job on the shared stack."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Stack
from tests.integration.spark.instance import Instance


@pytest.fixture
def instance(stack: Stack, tmp_path: Path) -> Iterator[Instance]:
    made = Instance(stack.brokers, stack.registry_url, tmp_path)
    made.deploy()
    try:
        yield made
    finally:
        made.remove()
