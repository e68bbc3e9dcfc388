"""The commands that import files or run a Spark job, without an instance: what they pass on, print and refuse."""

import json
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from starling_cli.app import build_app
from starling_cli.commands import export, load, replay, report, reprocess
from starling_cli.commands.remote import traits
from starling_local.errors import NotPossible
from starling_local.instance import Instance, Options


class Jobs:
    """Takes the place of `run_job`; `code` is the exit code of the job."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, list[str]]] = []
        self.code = 0

    def run(
        self, _instance: Instance, name: str, module: str, arguments: Sequence[str], success_codes: Sequence[int] = (0,)
    ) -> int:
        assert self.code in success_codes
        self.calls.append((name, module, list(arguments)))
        return self.code


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> Jobs:
    made = Jobs()
    for module in (export, replay, report, reprocess, traits):
        monkeypatch.setattr(module, "run_job", made.run)
    return made


@pytest.fixture
def with_lake(tmp_path: Path) -> Path:
    Instance(tmp_path).save_options(Options(instance_id="one", port_base=20_000, lake=True))
    return tmp_path


def starling(*words: str | Path) -> Result:
    return CliRunner().invoke(build_app(), [str(word) for word in words])


def refusal(found: Result) -> str:
    assert isinstance(found.exception, NotPossible)
    return str(found.exception)


def test_a_replay_has_its_instant_and_its_name(jobs: Jobs, tmp_path: Path) -> None:
    found = starling("replay", "--until", "2024-05-01T00:00:00Z", "--into", "may", "--overwrite", "--data-dir", tmp_path)
    assert "replaying up to 2024-05-01T00:00:00Z" in found.stdout
    arguments = ["run", "--until", "2024-05-01T00:00:00Z", "--into", "may", "--overwrite"]
    assert jobs.calls == [("replay", "starling_spark.jobs.replay", arguments)]


def test_a_replay_without_a_name_is_refused(jobs: Jobs) -> None:
    assert "needs --until INSTANT and --into NAME" in refusal(starling("replay", "--until", "2024-05-01"))
    assert not jobs.calls


@pytest.mark.parametrize("code", [0, 1])
def test_a_difference_of_a_replay_is_its_exit_code(jobs: Jobs, tmp_path: Path, code: int) -> None:
    jobs.code = code
    assert starling("replay", "diff", "may", "--memberships-only", "--data-dir", tmp_path).exit_code == code
    assert jobs.calls == [("replay", "starling_spark.jobs.replay", ["diff", "may", "--memberships-only"])]


@pytest.mark.parametrize("code", [0, 1, 2])
def test_the_result_of_a_verification_is_its_exit_code(jobs: Jobs, tmp_path: Path, code: int) -> None:
    jobs.code = code
    found = starling("traits", "verify", "revenue", "--limit", "5", "--json", "--data-dir", tmp_path)
    assert (found.exit_code, found.stdout) == (code, "")
    assert jobs.calls == [("trait-verify", "starling_spark.jobs.trait_verify", ["revenue", "--limit", "5", "--json"])]
    assert "verifying revenue (log: " in starling("traits", "verify", "revenue", "--data-dir", tmp_path).stdout


def test_a_verification_runs_beside_its_installation(jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STARLING_REMOTE_API_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("STARLING_REMOTE_API_TOKEN", "t")
    assert "python -m starling_spark.jobs.trait_verify revenue" in refusal(starling("traits", "verify", "revenue"))
    monkeypatch.setattr(traits, "find_spec", lambda _name: None)
    assert "pyspark is missing" in refusal(starling("traits", "verify", "revenue", "--data-dir", tmp_path))
    assert not jobs.calls


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        (["--into", "new", "--overwrite"], ["run", "--into", "new", "--catalog", "then", "--overwrite"]),
        (["diff", "new"], ["diff", "new"]),
        (["switch", "new"], ["switch", "new"]),
        (["switch", "--live"], ["switch", "--live"]),
        (["list"], ["list"]),
        (["remove", "new"], ["remove", "new"]),
    ],
)
def test_a_reprocessing_has_the_arguments_of_its_command(
    jobs: Jobs, with_lake: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], arguments: list[str]
) -> None:
    monkeypatch.setenv("STARLING_DATA_DIR", str(with_lake))
    assert starling("reprocess", *words).exit_code == 0
    assert jobs.calls == [("reprocess", "starling_spark.jobs.reprocess", arguments)]


def test_a_reprocessing_that_cannot_run_states_the_cure(jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Instance(tmp_path).save_options(Options(instance_id="one", port_base=20_000))
    monkeypatch.setenv("STARLING_DATA_DIR", str(tmp_path))
    assert "needs --into NAME" in refusal(starling("reprocess"))
    assert "either a NAME or --live" in refusal(starling("reprocess", "switch"))
    assert "run `starling up --lake`" in refusal(starling("reprocess", "list"))
    assert not jobs.calls


@pytest.mark.parametrize(
    ("words", "arguments", "code"),
    [
        (["run"], ["run"], 0),
        (["run", "members", "traits", "--from-start"], ["run", "members", "traits", "--from-start"], 1),
        (["status", "members"], ["status", "members"], 0),
        (["rejects", "members"], ["rejects", "members"], 0),
    ],
)
def test_an_export_has_the_arguments_of_its_command(
    jobs: Jobs, with_lake: Path, words: list[str], arguments: list[str], code: int
) -> None:
    jobs.code = code
    assert starling("export", *words, "--data-dir", with_lake).exit_code == code
    assert jobs.calls == [("exports", "starling_spark.jobs.exports", arguments)]


def test_an_export_without_a_lake_states_the_cure(jobs: Jobs, tmp_path: Path) -> None:
    Instance(tmp_path).save_options(Options(instance_id="one", port_base=20_000))
    assert "run `starling up --lake`" in refusal(starling("export", "run", "--data-dir", tmp_path))
    assert not jobs.calls


class Reports:
    """Takes the place of the client of the API."""

    def __init__(self, as_of: str | None) -> None:
        self._as_of = as_of

    def as_of(self) -> str | None:
        return self._as_of

    def report(self, _part: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        return {"until": self._as_of, "computed_at": self._as_of}, []

    def close(self) -> None:
        pass


def test_a_report_ends_at_the_stream_time(jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "running_options", lambda _: None)
    monkeypatch.setattr(report, "api_of", lambda _: Reports("2024-05-01T00:00:00Z"))
    monkeypatch.setattr(report, "audience", lambda head, _: head)
    monkeypatch.setattr(report, "page", lambda head: f"<p>{head['until']}</p>")
    page = tmp_path / "report.html"
    found = starling("report", "audience", "--out", page, "--parquet", "rows", "--data-dir", tmp_path)
    assert found.exit_code == 0, found.output
    arguments = ["--until", "2024-05-01T00:00:00Z", "--out", "rows", "--overwrite"]
    assert jobs.calls == [("audience-report", "starling_spark.jobs.audience_report", arguments)]
    assert page.read_text() == "<p>2024-05-01T00:00:00Z</p>"


def test_the_report_of_campaigns_is_a_job(jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "running_options", lambda _: None)
    found = starling("report", "campaigns", "--out", "rows/", "--data-dir", tmp_path)
    assert found.exit_code == 0, found.output
    assert jobs.calls == [("campaign-report", "starling_spark.jobs.campaign_report", ["--out", "rows/", "--overwrite"])]
    assert "rows/funnel" in found.output


def test_a_report_without_events_is_refused(jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "running_options", lambda _: None)
    monkeypatch.setattr(report, "api_of", lambda _: Reports(None))
    assert "no events yet" in refusal(starling("report", "audience", "--data-dir", tmp_path))
    assert not jobs.calls


class Ingest(BaseHTTPRequestHandler):
    """Accepts every batch except items of the user `bad`."""

    users: list[str]

    def do_POST(self) -> None:
        items = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["batch"]
        self.users.extend(item["userId"] for item in items)
        rejected = [
            {"index": index, "messageId": None, "code": "invalid", "message": "refused here"}
            for index, item in enumerate(items)
            if item["userId"] == "bad"
        ]
        body = json.dumps({"success": not rejected, "accepted": len(items) - len(rejected), "rejected": rejected}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        pass


@pytest.fixture
def accepted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The users of the items that arrived, in their order."""
    users: list[str] = []
    server = HTTPServer(("127.0.0.1", 0), type("Own", (Ingest,), {"users": users}))
    ports = SimpleNamespace(address=lambda _: f"127.0.0.1:{server.server_port}")
    monkeypatch.setattr(load, "running_options", lambda _: SimpleNamespace(ports=ports))
    thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield users
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_file_is_imported_once_and_again_on_request(accepted: list[str], tmp_path: Path) -> None:
    history = tmp_path / "history.csv"
    history.write_text("userId,event,timestamp\nada,Bought,2024-05-01T00:00:00Z\nbob,Bought,2024-05-02T00:00:00Z\n")
    words = ("import", history, "--format", "csv", "--data-dir", tmp_path)
    assert "accepted 2, refused 0" in starling(*words).stdout
    assert "2 lines were accepted before" in starling(*words).stdout
    assert accepted == ["ada", "bob"]
    assert "accepted 2, refused 0" in starling(*words, "--again").stdout
    assert accepted == ["ada", "bob", "ada", "bob"]


def test_refused_lines_of_a_file_are_printed_and_fail_the_command(accepted: list[str], tmp_path: Path) -> None:
    history = tmp_path / "history.jsonl"
    history.write_text("".join(json.dumps({"type": "track", "event": "E", "userId": user}) + "\n" for user in ("ada", "bad")))
    found = starling("import", history, "--format", "segment-jsonl", "--data-dir", tmp_path)
    assert found.exit_code == 1
    assert "refused here" in found.stdout
    assert "accepted 1, refused 1" in found.stdout
    assert accepted == ["ada", "bad"]


def test_a_file_with_an_invalid_header_is_refused(accepted: list[str], tmp_path: Path) -> None:
    history = tmp_path / "history.csv"
    history.write_text("who,what\nada,Bought\n")
    assert "invalid header" in refusal(starling("import", history, "--format", "csv", "--data-dir", tmp_path))
    assert not accepted
