"""The real parts of a fault run (broker, registry, Cassandra once a worker needs it), each of which can be taken away at will."""

import os
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka.admin import AdminClient

from starling_common.cassandra.sessions import create_tables, open_session
from starling_common.deploy import create_topics, register_schemas
from starling_common.kafka.topics import load_catalogue
from starling_common.settings import Cassandra
from starling_common.wire import Registry
from starling_local.instance import Options
from starling_local.java import find_java
from starling_local.stack.parts.jvm_registry import registry_url
from starling_local.stack.parts.part import Part
from starling_local.stack.supervision.probes import is_ready
from starling_local.stack.wiring import runnable_parts
from starling_local.testing import free_base


@dataclass
class Server:
    """One part as a process of ours. A fault holds `lock` while it stops the part, so that two faults never share it."""

    part: Part
    log: Path
    process: "subprocess.Popen[bytes] | None" = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self) -> None:
        part = self.part
        for directory in part.directories:
            directory.mkdir(parents=True, exist_ok=True)
        for path, text in part.files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        with self.log.open("ab") as out:
            if part.prepare and not part.prepare.creates.exists():
                subprocess.run(part.prepare.command, stdout=out, stderr=out, check=True)
            environment = {**os.environ, **part.env}
            self.process = subprocess.Popen(
                part.command, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT
            )

    def wait_ready(self, seconds: float = 300.0) -> None:
        deadline = time.monotonic() + seconds
        while not is_ready(self.part.probe):
            assert self.process is not None, f"{self.part.name} was never started"
            if self.process.poll() is not None:
                self.start()  # as the stack's supervisor would: on a busy machine a part can run into a time-out of its own
            assert time.monotonic() < deadline, f"{self.part.name} was not ready within {seconds} s, see {self.log}"
            time.sleep(0.1)

    def stop(self) -> None:
        """As an operator would; killed when it does not end within its grace."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(self.part.grace_seconds)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def pause(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)


@dataclass(frozen=True)
class Stack:
    brokers: str
    registry_url: str
    cassandra: Cassandra
    servers: dict[str, Server]

    def environment(self) -> dict[str, str]:
        return {
            "STARLING_KAFKA__BROKERS": self.brokers,
            "STARLING_REGISTRY__URL": self.registry_url,
            "STARLING_CASSANDRA__CONTACT_POINTS": self.cassandra.contact_points,
            "STARLING_CASSANDRA__PORT": str(self.cassandra.port),
            "STARLING_CASSANDRA__KEYSPACE": self.cassandra.keyspace,
        }


@contextmanager
def running(names: tuple[str, ...], data_dir: Path) -> Iterator[Stack]:
    """Starts the parts and deploys; ends exactly these processes when the block ends."""
    data_dir.mkdir(parents=True, exist_ok=True)
    with free_base() as base:
        options = Options(instance_id=uuid.uuid4().hex, port_base=base, clock="event", spark=False, only=tuple(sorted(names)))
        parts = runnable_parts(data_dir.absolute(), options, find_java())
        servers = {part.name: Server(part, data_dir / f"{part.name}.log") for part in parts}
        host, _, _ = options.ports.address("cassandra").partition(":")
        cassandra = Cassandra(contact_points=host, port=options.ports.fixed("cassandra"))
        stack = Stack(options.ports.address("kafka"), registry_url(options.ports), cassandra, servers)
        try:
            for server in servers.values():
                server.start()
            for server in servers.values():
                server.wait_ready()
            _deploy(stack)
            yield stack
        finally:
            for server in servers.values():
                server.kill()


def _deploy(stack: Stack) -> None:
    topics = list(load_catalogue().topics.values())
    create_topics(AdminClient({"bootstrap.servers": stack.brokers}), topics, 1)
    register_schemas(Registry(stack.registry_url), topics)
    if "cassandra" in stack.servers:
        session = open_session(stack.cassandra)
        create_tables(session, stack.cassandra)
        session.cluster.shutdown()
