"""Stacks of this folder's own: its tests kill, stop and fill them, which a shared one would not forgive."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from starling_common.deploy import create_topics, register_schemas
from starling_common.kafka.topics import load_catalogue
from starling_common.wire import Registry
from starling_local.testing import Addresses, embedded, free_base

Starling = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Addresses]:
    """Broker and registry with topics and schemas, on the event clock."""
    with embedded({"kafka", "registry"}, tmp_path_factory.mktemp("deployed"), clock="event") as found:
        topics = list(load_catalogue().topics.values())
        create_topics(AdminClient({"bootstrap.servers": found.kafka}), topics, replication_factor=1)
        register_schemas(Registry(found.registry_url), topics)
        yield found


@pytest.fixture
def base() -> Iterator[int]:
    with free_base() as found:
        yield found


@pytest.fixture
def starling() -> Starling:
    """Run the command as a person would; the answer with its output."""

    def run(data_dir: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "starling_cli", *arguments, "--data-dir", str(data_dir)],
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
            env={**os.environ, "COLUMNS": "200"},
        )

    return run
