"""Shared by the segmenter's benchmarks: definitions, users and the worker process."""

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from common import shop
from common.bench import Progress, Stack, Watched, write
from starling_common.headers import record_headers
from starling_common.kafka.topics import BEHAVIOUR, PROFILE, SEGMENT_DEFINITIONS, load_catalogue
from starling_common.kafka.topics import stage as stage_of
from starling_common.testing import free_port
from starling_common.wire import Registry

GROUP: Final = stage_of("segmenter").group
HOUR_MS: Final = 3_600_000


def load(stack: Stack, topic: str, records: Iterator[tuple[bytes, dict[str, Any]]]) -> int:
    """Write records to one of the product's topics, as Avro; return their number."""
    encode = Registry(stack.registry_url).codec(topic, load_catalogue().topics[topic].schema).encode
    encoded = ((key, encode(record)) for key, record in records)
    return write(stack.brokers, topic, encoded, record_headers("benchmark", "benchmark"))


def define(stack: Stack, segments: Mapping[str, dict[str, Any]]) -> None:
    """Write the definitions; a worker that is started afterwards reads all of them."""
    load(stack, SEGMENT_DEFINITIONS, shop.definitions(segments))


def start(stack: Stack, directory: Path, clock: str = "event") -> Watched:
    """Start `python -m starling_segmenter` with its state and log below the directory."""
    environment = stack.environment() | {
        "STARLING_HTTP__PORT": str(free_port()),
        "STARLING_CLOCK": clock,
        "STARLING_INSTANCE_ID": "segmenter-0",
        "STARLING_STATE_DIR": str(directory / "state"),
    }
    return Watched([sys.executable, "-m", "starling_segmenter"], environment, directory / "worker.log")


def make_known(
    stack: Stack,
    directory: Path,
    users: int,
    clock: str = "event",
    profiles: Callable[[], Iterator[tuple[bytes, dict[str, Any]]]] = shop.profiles,
) -> Watched:
    """Write one profile record for each user; return the running worker after it has processed them."""
    shop.USERS = users
    load(stack, PROFILE, profiles())
    worker = start(stack, directory, clock)
    progress = Progress(stack.brokers, GROUP, PROFILE)
    try:
        progress.wait(users, worker)
    except BaseException:
        worker.stop()
        raise
    finally:
        progress.close()
    return worker


def events(stack: Stack) -> Progress:
    """Return the segmenter's committed offsets of the event topic."""
    return Progress(stack.brokers, GROUP, BEHAVIOUR)
