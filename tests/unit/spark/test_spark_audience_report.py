"""The end of an audience report, as its command line and the clock give it."""

import sys
from collections.abc import Mapping

import pytest

from starling_common.time.instants import wall_clock_ms
from starling_spark.jobs.audience_report import __main__ as command
from starling_spark.jobs.audience_report.job import ReportRequest

ENVIRONMENT = {
    "STARLING_KAFKA__BROKERS": "127.0.0.1:1",
    "STARLING_REGISTRY__URL": "http://127.0.0.1:1",
    "STARLING_CASSANDRA__CONTACT_POINTS": "127.0.0.1",
    "STARLING_HTTP__PORT": "8080",
    "STARLING_INSTANCE_ID": "report-0",
    "STARLING_SPARK_JARS": "/opt/jars/a.jar",
    "STARLING_CHECKPOINT_DIR": "/tmp",
}


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[ReportRequest]:
    """The reports that were requested; none is computed."""
    found: list[ReportRequest] = []

    def run(_settings: object, request: ReportRequest) -> Mapping[str, int]:
        found.append(request)
        return {"days": 1}

    monkeypatch.setattr(command, "run_report", run)
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    return found


def run(monkeypatch: pytest.MonkeyPatch, clock: str, *words: str) -> int:
    """Run the command with the words; return its exit code."""
    monkeypatch.setenv("STARLING_CLOCK", clock)
    monkeypatch.setattr(sys, "argv", ["audience_report", *words])
    return command.main()


@pytest.mark.parametrize("clock", ["wall", "event"])
def test_until_ends_the_report_by_either_clock(clock: str, requests: list[ReportRequest], monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, clock, "--until", "2026-03-10T00:00:00Z") == 0
    assert requests == [ReportRequest(1_773_100_800_000, None)]


def test_without_until_the_wall_clock_ends_the_report(requests: list[ReportRequest], monkeypatch: pytest.MonkeyPatch) -> None:
    before = wall_clock_ms()
    assert run(monkeypatch, "wall", "--out", "s3a://reports", "--overwrite") == 0
    [request] = requests
    assert before <= request.until_ms <= wall_clock_ms()
    assert (request.out, request.overwrite) == ("s3a://reports", True)


def test_without_until_the_event_clock_has_no_end(
    requests: list[ReportRequest], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "event") == 2
    assert "--until: set the end of the report" in capsys.readouterr().err
    assert requests == []
