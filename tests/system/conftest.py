"""The whole platform, once for all system tests of a clock: real broker, database, registry, Spark and every service."""

from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import psutil
import pytest

from starling_cli.commands.common import pipeline_of
from starling_cli.settle.settle import settle
from starling_local.instance import Instance, PartReport
from starling_local.stack.parts.services import API_TOKEN, WRITE_KEY
from starling_local.testing import Addresses, embedded
from tests.otlp import Collector

STREAMING = ("ingest", "normalizer-0", "segmenter-0", "projector-0", "api", "delivery-0")
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


def _platform(at: Addresses) -> Iterator[Platform]:
    with (
        httpx.Client(base_url=at.api_url, headers={"Authorization": f"Bearer {API_TOKEN}"}, timeout=30, trust_env=False) as api,
        httpx.Client(base_url=at.ingest_url, auth=(WRITE_KEY, ""), timeout=30, trust_env=False) as ingest,
    ):
        yield Platform(at, Instance(at.data_dir), api, ingest)


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """With the event clock, Spark and campaigns included."""
    with embedded({*STREAMING, *CAMPAIGNS, "spark"}, tmp_path_factory.mktemp("history"), clock="event", timeout_seconds=600) as at:
        yield from _platform(at)


@pytest.fixture(scope="package")
def collector() -> Iterator[Collector]:
    """The collector of the traces of `live`."""
    found = Collector()
    yield found
    found.close()


@pytest.fixture(scope="package")
def live(tmp_path_factory: pytest.TempPathFactory, collector: Collector) -> Iterator[Platform]:
    """With the wall clock, without Spark, and with every trace."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("STARLING_TRACES__ENDPOINT", collector.url)
        environment.setenv("STARLING_TRACES__RATIO", "1")
        with embedded(set(STREAMING), tmp_path_factory.mktemp("live"), clock="wall", timeout_seconds=600) as at:
            yield from _platform(at)
