"""Adapter for tests: a real embedded stack on free ports for the duration of a block."""

import fcntl
import random
import tempfile
import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from starling_local.instance import Clock, Instance, Options
from starling_local.ports import SPAN, Ports
from starling_local.preflight import is_free
from starling_local.stack.launch import StackError, start_supervisor, stop, wait_ready
from starling_local.stack.parts.jvm_registry import registry_url

_FIRST_BASE, _LAST_BASE = 20_000, 31_900
"""Below the range of the kernel's ephemeral ports."""

_UNFLUSHED = {"JDK_JAVA_OPTIONS": "-Dcassandra.test.flush_local_schema_changes=false"}


@dataclass(frozen=True, slots=True)
class Addresses:
    """The addresses of the parts. Parts that the test did not start do not answer."""

    data_dir: Path
    kafka: str
    registry_url: str
    cassandra_host: str
    cassandra_port: int
    ingest_url: str
    api_url: str
    ports: Ports


@contextmanager
def embedded(
    parts: Collection[str],
    data_dir: Path,
    *,
    clock: Clock = "event",
    workspaces: tuple[str, ...] = (),
    kills_cassandra: bool = True,
    timeout_seconds: float = 600.0,
) -> Iterator[Addresses]:
    """Start the parts and their dependencies under a supervisor; yield their addresses when all are ready.

    Shape: `parts` are names that `starling status` prints, such as {"kafka", "registry", "cassandra"};
           `workspaces` are those beside the default one.
           `kills_cassandra` is whether its tables must survive SIGKILL. Without that they are created in a third of the time.
    Raises: StackError if the parts are not ready in time.
    """
    with free_base() as base:
        options = Options(
            instance_id=uuid.uuid4().hex,
            port_base=base,
            clock=clock,
            spark="spark" in parts,
            lake="lake" in parts,
            views="views" in parts,
            campaigns=any(part.startswith("messenger") for part in parts),
            only=tuple(sorted(parts)),
            workspaces=workspaces,
        )
        instance = Instance(data_dir.absolute())
        instance.save_options(options)
        process = start_supervisor(instance, ends_with_caller=True, environment={} if kills_cassandra else _UNFLUSHED)
        try:
            wait_ready(instance, options.revision, timeout_seconds)
            yield addresses(instance)
        finally:
            stop(instance)
            process.wait()


def addresses(instance: Instance) -> Addresses:
    """Return the addresses of the parts of an instance."""
    ports = instance.options().ports
    host, _, _ = ports.address("cassandra").partition(":")
    return Addresses(
        data_dir=instance.data_dir,
        kafka=ports.address("kafka"),
        registry_url=registry_url(ports),
        cassandra_host=host,
        cassandra_port=ports.fixed("cassandra"),
        ingest_url=f"http://{ports.address('ingest')}",
        api_url=f"http://{ports.address('api')}",
        ports=ports,
    )


@contextmanager
def free_base() -> Iterator[int]:
    """Yield a port base with free ports; a lock file reserves it for the duration of the block."""
    bases = list(range(_FIRST_BASE, _LAST_BASE, SPAN))
    random.shuffle(bases)
    for base in bases:
        lock = Path(tempfile.gettempdir()) / f"starling-ports-{base}.lock"
        with lock.open("w") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            if all(is_free(port) for port in range(base, base + SPAN)):
                yield base
                return
    raise StackError(f"no {SPAN} consecutive free ports between {_FIRST_BASE} and {_LAST_BASE}")
