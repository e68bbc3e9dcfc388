"""What all tests share: a real broker for each of pytest's processes, one registry and one database for all of them."""

import fcntl
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import httpx
import pytest
import structlog
from coverage import Coverage
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

from starling_common.deploy import DeploySettings, deploy
from starling_common.settings import Cassandra, Kafka, SchemaRegistry
from starling_common.testing import drop_own_keyspaces
from starling_local.testing import embedded

ROOT = Path(__file__).parent.parent

# Each of the hundreds of processes that the tests start would compile its sources again, up to a quarter of its start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# The JVMs here live for minutes, and what they compile a second time with all optimisations takes longer than it saves:
# broker, database and registry cost 23 s of processor until schemas and tables are in place, and 42 s without this.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")

# Tests wait for Spark's jobs. Beside other tests on two processors a process of a higher niceness gets a hundredth of them.
os.environ.setdefault("STARLING_JOB_NICE", "0")

# Every client of httpx would read all authorities of the system, 25 ms of processor time: a test that asks every 50 ms until
# something is there would take a third of a processor for it.
httpx._transports.default.create_ssl_context = cache(httpx.create_ssl_context)  # type: ignore[attr-defined]

# The default renderer draws each frame of a traceback with its source and variables, which takes seconds of the processor.
structlog.configure(processors=[structlog.processors.format_exc_info, structlog.dev.ConsoleRenderer(colors=False)])

settings.register_profile("starling", deadline=None)  # the duration of an example depends on the load of the machine
settings.load_profile("starling")


LONGEST_FIRST = (
    "tests/system/test_main_job.py", "tests/integration/spark", "tests/spark", "tests/faults", "tests/system",
    "tests/integration/segmenter", "tests/integration/stream", "tests/integration", "tests/contract", "tests/property",
    "tests/unit",
)  # fmt: skip
"""Start the longest files first, which shortens the run."""

ON_ONE = ("tests/system/test_live", "tests/contract/api", "tests/spark")
"""Files that share something that takes long to start: one process of pytest's gets all of them."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In the order of `LONGEST_FIRST`, without the tests marked `long` unless `STARLING_LONG=all`."""
    if os.environ.get("STARLING_LONG") != "all":
        long = [item for item in items if item.get_closest_marker("long") is not None]
        items[:] = [item for item in items if item.get_closest_marker("long") is None]
        config.hook.pytest_deselected(items=long)
    items.sort(key=lambda item: next((at for at, start in enumerate(LONGEST_FIRST) if item.nodeid.startswith(start)), 0))


class Together(LoadFileScheduling):  # type: ignore[misc]
    """File by file, but for those of `ON_ONE`."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::", 1)[0]
        return next((start for start in ON_ONE if file.startswith(start)), file)


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Together:
    """The distribution of the files over several processes."""
    return Together(config, log)


_LASTING: dict[str, ExitStack] = {}
"""What fixtures have started for the tests of some files, by the beginning of their paths."""


def until_the_last_of(files: str) -> ExitStack:
    """Return a stack that is closed after the last test whose path begins with `files`; these tests follow one another.

    A fixture of the session would keep a platform running beside all later tests: it costs a quarter of a core without any work.
    The fixture closes the stack too, for the case that no test follows: before the fixtures on which it depends.
    """
    return _LASTING.setdefault(files, ExitStack())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Close the stacks whose last test this was, after its own fixtures."""
    try:
        yield
    finally:
        for files in [files for files in _LASTING if item.nodeid.startswith(files)]:
            if nextitem is not None and not nextitem.nodeid.startswith(files):
                _LASTING.pop(files).close()


def pytest_sessionstart() -> None:
    """Nothing is tested that was compiled from older sources."""
    if (
        any((ROOT / "libs").rglob("*.so"))
        and subprocess.run([sys.executable, ROOT / "apps" / "local" / "compile_native.py", "--check"], check=False).returncode
    ):
        raise pytest.UsageError("what is compiled in libs was made from other sources: make setup")


def pytest_sessionfinish() -> None:
    """Save the coverage of this process: pytest-xdist kills a process that takes more than 10 s to end."""
    coverage = Coverage.current()
    if coverage is not None:
        coverage.save()


@dataclass(frozen=True, slots=True)
class Stack:
    """Addresses of the real parts. Topics, schemas and tables are in place."""

    brokers: str
    registry_url: str
    cassandra: Cassandra

    def environment(self) -> dict[str, str]:
        """The settings of a service that is to use this stack, as environment variables."""
        return {
            "STARLING_KAFKA__BROKERS": self.brokers,
            "STARLING_REGISTRY__URL": self.registry_url,
            "STARLING_CASSANDRA__CONTACT_POINTS": self.cassandra.contact_points,
            "STARLING_CASSANDRA__PORT": str(self.cassandra.port),
            "STARLING_CASSANDRA__KEYSPACE": self.cassandra.keyspace,
        }


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A running stack: the one described by the JSON file `STARLING_TEST_STACK` names, else an embedded one of our own."""
    described = os.environ.get("STARLING_TEST_STACK")
    if described:
        given = deployed(_read(Path(described)))
        yield given
        drop_own_keyspaces(given.cassandra)
        return
    own, process = tmp_path_factory.mktemp("stack"), os.environ.get("PYTEST_XDIST_WORKER", "alone")
    common = own.parent if process == "alone" else own.parents[1]
    with embedded({"kafka"}, own / "broker") as found, shared_parts(common) as shared:
        cassandra = shared.cassandra.model_copy(update={"keyspace": f"starling_{process}"})
        made = Stack(found.kafka, shared.registry_url, cassandra)
        with _in_turn(common):
            deployed(made)
        yield made


@dataclass(frozen=True, slots=True)
class Shared:
    """What all of pytest's processes use at once: each has topics and a keyspace of its own."""

    registry_url: str
    cassandra: Cassandra


@contextmanager
def shared_parts(directory: Path) -> Iterator[Shared]:
    """Registry and database: the first of pytest's processes that needs them starts them, and ends them when all have done."""
    place = directory / "shared.json"
    with (directory / "shared.users").open("w") as users, ExitStack() as last:
        fcntl.flock(users, fcntl.LOCK_SH)
        with _in_turn(directory):
            if not place.exists():
                found = last.enter_context(embedded({"registry", "cassandra"}, directory / "shared", kills_cassandra=False))
                place.write_text(json.dumps([found.registry_url, found.cassandra_host, found.cassandra_port]))
                last.callback(place.unlink)
                last.callback(fcntl.flock, users, fcntl.LOCK_EX)  # called first: granted when no other process uses it
        registry_url, host, port = json.loads(place.read_text())
        yield Shared(registry_url, Cassandra(contact_points=host, port=port))


@contextmanager
def _in_turn(directory: Path) -> Iterator[None]:
    with (directory / "shared.turn").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        yield


@pytest.fixture
def workspace() -> str:
    """A workspace of this test's own."""
    return f"t{uuid.uuid4().hex[:12]}"


def _read(path: Path) -> Stack:
    document = json.loads(path.read_text())
    cassandra = Cassandra(contact_points=document["cassandra_host"], port=int(document["cassandra_port"]))
    return Stack(document["brokers"], document["registry_url"], cassandra)


def deployed(stack: Stack) -> Stack:
    """The same, with topics, schemas and tables in place."""
    deploy(
        DeploySettings(
            kafka=Kafka(brokers=stack.brokers),
            registry=SchemaRegistry(url=stack.registry_url),
            cassandra=stack.cassandra,
            acknowledge_single_copy=True,
        )
    )
    return stack
