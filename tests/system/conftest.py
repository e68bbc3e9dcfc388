"""The whole platform, once for all system tests of a clock: real broker, database, registry, Spark and every service."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
import psutil
import pytest

from starling_cli.commands.common import pipeline_of
from starling_cli.settle.settle import settle
from starling_local.instance import Instance, PartReport
from starling_local.stack.parts.services import API_TOKEN, WRITE_KEY
from starling_local.testing import Addresses, embedded
from tests.conftest import until_the_last_of
from tests.otlp import Collector

STREAMING = ("ingest", "normalizer-0", "segmenter-0", "projector-0", "api", "delivery-0")
LIVE = "tests/system/test_live"
"""The beginning of the files that share the platform with the wall clock."""
CAMPAIGNS = ("messenger-0", "delivery-email-0", "tracker")


@dataclass(frozen=True, slots=True)
class Platform:
    """A running instance, driven as an outside party would."""

    at: Addresses
    instance: Instance
    api: httpx.Client
    ingest: httpx.Client

    def settle(self, timeout_seconds: float = 300.0) -> None:
        with pipeline_of(self.instance) as pipeline:
            settle(pipeline, timeout_seconds)

    def part(self, name: str) -> PartReport:
        report = self.instance.report()
        assert report is not None
        return next(part for part in report.parts if part.name == name)

    def kill(self, name: str) -> int:
        """SIGKILL to a part's process, found by its own id."""
        pid = self.part(name).pid
        assert pid is not None
        psutil.Process(pid).kill()
        return pid


@contextmanager
def platform_at(at: Addresses) -> Iterator[Platform]:
    """Yield the platform at these addresses."""
    with (
        httpx.Client(base_url=at.api_url, headers={"Authorization": f"Bearer {API_TOKEN}"}, timeout=30, trust_env=False) as api,
        httpx.Client(base_url=at.ingest_url, auth=(WRITE_KEY, ""), timeout=30, trust_env=False) as ingest,
    ):
        yield Platform(at, Instance(at.data_dir), api, ingest)


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """With the event clock, Spark and campaigns included."""
    with (
        embedded({*STREAMING, *CAMPAIGNS, "spark"}, tmp_path_factory.mktemp("history"), clock="event", kills_cassandra=False) as at,
        platform_at(at) as found,
    ):
        yield found


@pytest.fixture(scope="session")
def collector() -> Iterator[Collector]:
    """The collector of the traces of `live`."""
    with until_the_last_of(LIVE) as last:
        found = Collector()
        last.callback(found.close)
        yield found


@pytest.fixture(scope="session")
def live(tmp_path_factory: pytest.TempPathFactory, collector: Collector) -> Platform:
    """With the wall clock, without Spark, and with every trace."""
    last = until_the_last_of(LIVE)
    # It lasts as long as the platform, which a test starts again.
    environment = last.enter_context(pytest.MonkeyPatch.context())
    environment.setenv("STARLING_TRACES__ENDPOINT", collector.url)
    environment.setenv("STARLING_TRACES__RATIO", "1")
    at = last.enter_context(embedded(set(STREAMING), tmp_path_factory.mktemp("live"), clock="wall", kills_cassandra=False))
    return last.enter_context(platform_at(at))
