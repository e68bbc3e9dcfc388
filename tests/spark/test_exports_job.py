"""The job `exports` from a real lake to a real PostgreSQL and to files: increments, a kill, rejected rows, and clear errors."""

import json
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from threading import Event
from typing import Any
from urllib.parse import urlsplit

import pyarrow.parquet as pq
import pytest
from pydantic import SecretStr, ValidationError
from pyspark.sql import SparkSession
from structlog.testing import capture_logs

from starling_common.testing import eventually
from starling_local.postgres import PostgresServer, postgres
from starling_spark.jobs.exports import __main__ as command
from starling_spark.jobs.exports import job as jobs
from starling_spark.jobs.exports.definition import ExportDefinition
from starling_spark.jobs.exports.job import ExportJob, Exports
from starling_spark.jobs.exports.settings import ExportSettings
from tests.lineage_receiver import places, rows_of, sent_lineage
from tests.spark.conftest import spark_settings
from tests.spark.exports_rig import ENVIRONMENT, PASSWORD, START, Rig, change, process, profile

WRONG = "planted-wrong-0d2e"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres(PASSWORD) as found:
        yield found


@pytest.fixture
def rig(spark: SparkSession, server: PostgresServer, tmp_path: Path) -> Rig:
    return Rig(spark, server, tmp_path)


@pytest.mark.long
def test_memberships_are_exported_by_increments_and_never_go_back(rig: Rig) -> None:
    job = rig.job(one=rig.to_postgres("memberships", "members", workspace="acme"))
    assert "PRIMARY KEY (workspace, segment_key, user_id)" in rig.created(job)
    assert rig.run(job) is None
    rig.add(
        "membership_changes", change("ann", 1, 1), change("bob", 1, 1), change("ann", 2, 2), change("eve", 1, 1, workspace="other")
    )
    rig.add("membership_changes", change("ann", 3, 3))
    assert rig.done(job) == (2, 2, 0)
    chosen = "user_id, is_member, entered_at, row_version"
    days = [START + timedelta(days=day) for day in range(9)]
    assert rig.table("members", chosen) == [("ann", True, days[3], 3), ("bob", True, days[1], 1)]
    rig.add("membership_changes", change("bob", 2, 5))
    assert rig.done(job) == (3, 1, 0)
    assert rig.run(job) is None
    expected = [("ann", True, days[3], 3), ("bob", False, None, 2)]
    assert rig.table("members", chosen) == expected
    assert rig.done(job, from_start=True) == (4, 2, 0)
    assert rig.table("members", chosen) == expected
    assert [(row.run, row.state) for row in job.runs(["one"])] == [(4, "done"), (3, "done"), (2, "done"), (1, "failed")]


def test_profiles_computed_traits_and_tables_are_exported(rig: Rig) -> None:
    sources = ("profiles", "computed_traits", "profile_changes")
    job = rig.job(**{name: rig.to_files(name, columns=None) for name in sources})
    rig.add(
        "profile_changes",
        profile("ann", 1, {"plan": "a"}, ["plan"]),
        profile("ann", 2, {"plan": "a", "computed": {"spent-30d": 12.5, "shop": "x"}}, ["computed.spent-30d", "computed.shop"]),
        profile("bob", 3, {"computed": {"spent-30d": 1}}, ["computed.spent-30d"]),
        profile("ann", 4, {"plan": "b", "computed": {"shop": "x"}}, ["plan", "computed.spent-30d"]),
    )
    assert [rig.done(job, name) for name in sources] == [(1, 2, 0), (1, 3, 0), (1, 4, 0)]

    def rows(name: str) -> list[dict[str, Any]]:
        (file,) = (rig.directory / name / "run=00000001").glob("*.parquet")
        found: list[dict[str, Any]] = pq.read_table(file).to_pylist()
        return found

    ann = next(one for one in rows("profiles") if one["user_id"] == "ann")
    at = START + timedelta(seconds=4)
    assert ann == {
        "workspace": "acme", "user_id": "ann", "anonymous_ids": '["ann-1"]', "group_id": None,
        "traits": '{"plan": "b", "computed": {"shop": "x"}}', "updated_at": at, "row_version": int(at.timestamp() * 1_000_000),
    }  # fmt: skip
    values = {(one["user_id"], one["trait_key"]): one["value"] for one in rows("computed_traits")}
    assert values == {("ann", "spent-30d"): None, ("ann", "shop"): "x", ("bob", "spent-30d"): "1"}
    assert sorted(one["origin_offset"] for one in rows("profile_changes")) == [0, 1, 2, 3]
    assert rows("profile_changes")[0]["changed"].startswith('["')


@pytest.mark.long
def test_a_run_emits_what_it_reads_and_writes_and_why_it_failed(rig: Rig, tmp_path: Path) -> None:
    with sent_lineage(spark_settings(tmp_path)) as (lineage, receiver):
        bad = rig.to_postgres("memberships", "missing")
        definitions = {"good": rig.to_files("memberships"), "bad": bad, "refused": rig.to_files("nothing")}
        job = rig.reported(lineage, definitions)
        rig.add("membership_changes", change("planted-ann", 1, 1), change("planted-bob", 1, 1))
        assert [row.state for row in job.run(["good", "bad", "refused"], lambda: False).values() if row] == [
            "done",
            "failed",
            "failed",
        ]
        snapshot = rig.lake.snapshot("membership_changes")
    start, end, *others = receiver.events()
    assert [one["eventType"] for one in (start, end, *others)] == ["START", "COMPLETE", "START", "FAIL", "START", "FAIL"]
    assert [one["job"]["name"] for one in others] == ["exports.bad", "exports.bad", "exports.refused", "exports.refused"]
    assert start["run"]["runId"] == end["run"]["runId"]
    table = urlsplit(rig.lake.location("membership_changes")).path
    for event in (start, end):
        assert places(event["inputs"]) == [("file", table)]
        assert places(event["outputs"]) == [("file", str(rig.directory / "memberships"))]
    facets = end["inputs"][0]["facets"]
    assert facets["version"]["datasetVersion"] == str(snapshot)
    assert facets["symlinks"]["identifiers"][0]["name"] == f"{rig.lake.namespace}.membership_changes"
    assert {one["name"] for one in facets["schema"]["fields"]} >= {"user_id", "segment_key", "origin_offset"}
    assert end["outputs"][0]["facets"]["schema"]["fields"][0] == {"name": "workspace", "type": "string", "fields": []}
    assert rows_of(end) == {str(rig.directory / "memberships"): 2}
    message = others[1]["run"]["facets"]["errorMessage"]["message"]
    assert message.startswith("SinkRefused: "), message
    assert places(others[1]["outputs"]) == [(f"postgres://127.0.0.1:{rig.server.port}", f"postgres.{rig.schema}.missing")]
    assert "BadSource" in others[3]["run"]["facets"]["errorMessage"]["message"]
    assert "planted" not in "".join(receiver.bodies)


@pytest.mark.long
def test_rejected_rows_are_listed_and_the_others_go_on(rig: Rig) -> None:
    job = rig.job(one=rig.to_postgres("memberships", "members", columns=["is_member"], max_rejects=2))
    rig.created(job)
    rig.sql(f"ALTER TABLE {rig.schema}.members ADD CHECK (user_id <> 'bob')")
    rig.add("membership_changes", change("ann", 1, 1), change("bob", 1, 1), change("b\0b", 1, 1), change("eve", 1, 1))
    assert rig.done(job) == (2, 2, 2)
    assert [one[0] for one in rig.table("members", "user_id, 1")] == ["ann", "eve"]
    rejects = {one.key: (one.code, one.run, one.version) for one in job.rejects("one")}
    assert rejects == {"acme/vip/bob": ("23514", 2, 1), "acme/vip/b\0b": ("bad_value", 2, 1)}
    rig.add("membership_changes", *[change("bob", 1, 1, f"s{number}") for number in range(3)], change("zoe", 1, 1))
    assert "stopped after 3 rejected rows, over max_rejects 2, the first of them acme/s" in rig.message(job)
    rig.sql(f"ALTER TABLE {rig.schema}.members DROP CONSTRAINT members_user_id_check")
    assert rig.done(job) == (4, 4, 0)
    assert rig.done(job, from_start=True) == (5, 7, 1)


class Killed(BaseException):
    """The death of the process."""


def killed(*_: object) -> None:
    raise Killed


@pytest.mark.parametrize("place", ["_written", pytest.param("set_rejects", marks=pytest.mark.long)])
def test_a_run_that_was_killed_is_repeated_with_the_same_records(rig: Rig, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    job = rig.job(one=rig.to_files("memberships", "csv"))
    rig.add("membership_changes", change("ann", 1, 1))
    with monkeypatch.context() as dying:
        dying.setattr(jobs if place == "_written" else job._store, place, killed)
        with pytest.raises(Killed):
            rig.run(job)
    rig.add("membership_changes", change("bob", 1, 1))
    assert rig.done(job)[0] == 1
    assert rig.done(job)[:2] == (2, 1)
    manifests = [json.loads(path.read_text()) for path in sorted((rig.directory / "memberships").glob("*/manifest.json"))]
    assert [(one["run"], one["rows"]) for one in manifests] == [(1, 1), (2, 1)]


@pytest.mark.long
def test_a_changed_export_begins_at_the_start_and_a_failed_one_keeps_its_place(rig: Rig) -> None:
    rig.add("membership_changes", change("ann", 1, 1))
    assert rig.done(rig.job(one=rig.to_files("memberships"))) == (1, 1, 0)
    rig.add("membership_changes", change("bob", 1, 1))
    moved = rig.to_files("memberships", to=(rig.directory / "other").as_uri())
    (rig.directory / "other").write_text("")
    job = rig.job(one=moved, two=rig.to_files("memberships", to=(rig.directory / "two").as_uri()))
    ended = job.run(["one", "two"], lambda: False)
    assert {name: row.state for name, row in ended.items() if row is not None} == {"one": "failed", "two": "done"}
    (rig.directory / "other").unlink()
    assert rig.done(job) == (3, 2, 0)


def test_an_error_names_place_and_cure(rig: Rig) -> None:
    errors: dict[str, tuple[dict[str, Any], str]] = {
        "source": ({"source": "members"}, "source: 'members' is unknown: write one of memberships, profiles"),
        "table": ({"source": "behaviour_events"}, "the lake has no table behaviour_events yet: start the job `lake`"),
        "columns": ({"columns": ["traits"]}, "columns: there is no column 'traits': choose from workspace, segment_key"),
        "sink": ({"sink": "mysql"}, "sink: 'mysql' is unknown"),
        "to": (
            {"to": f"postgresql://a:{PASSWORD}@db/x"},
            "to: contains a password: remove it, and write it to the entry 'to' of STARL",
        ),
        "host": ({"to": "postgresql://starling@127.0.0.1:9/x"}, "correct host and port, or start the server"),
    }
    job = rig.job(**{name: rig.to_postgres("memberships", "members") | wrong for name, (wrong, _) in errors.items()})
    ended = job.run(list(errors), lambda: False)
    for name, (_, reason) in errors.items():
        row = ended[name]
        assert row is not None
        assert (row.state, reason in str(row.message)) == ("failed", True), row.message


def test_no_message_and_no_log_has_a_secret(rig: Rig, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    job = rig.job(one=rig.to_postgres("memberships", "members"))
    rig.created(job)
    rig.add("membership_changes", change("ann", 1, 1))
    definitions = {"one": ExportDefinition(**rig.to_postgres("memberships", "members"))}
    refused = ExportJob(rig.spark, rig.lake, Exports(definitions, {"one": SecretStr(WRONG)}, ""))
    assert rig.message(refused).endswith("correct the entry 'one' of STARLING_EXPORTS_PASSWORDS")
    rig.done(job)
    rows = rig.lake.rows("export_runs").collect()
    text = f"{rows}{capfd.readouterr()}{rig.server.log.read_text()}"
    assert PASSWORD not in text
    assert WRONG not in text
    settings = {
        "STARLING_EXPORTS": json.dumps({"one": {"source": "profiles", "sink": "csv", "to": PASSWORD, "tabel": PASSWORD}}),
        "STARLING_EXPORTS_PASSWORDS": json.dumps({"one": PASSWORD}),
    }
    for name, value in {**ENVIRONMENT, **settings}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValidationError, match="tabel") as caught:
        ExportSettings()
    assert PASSWORD not in str(caught.value)
    monkeypatch.setenv("STARLING_EXPORTS", json.dumps({"One": {"source": "profiles", "sink": "csv", "to": "file:///a"}}))
    with pytest.raises(ValidationError, match="'One' is no name"):
        ExportSettings()
    monkeypatch.setenv("STARLING_EXPORTS", "{}")
    assert PASSWORD not in repr(ExportSettings())


@pytest.mark.long
def test_the_command_prints_runs_and_rejected_rows(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    definitions = {"good": rig.to_postgres("memberships", "members"), "bad": rig.to_postgres("memberships", "absent")}
    job = rig.job(**definitions)
    rig.created(job, "good")
    rig.sql(f"ALTER TABLE {rig.schema}.members ADD CHECK (user_id <> 'bob')")
    rig.add("membership_changes", change("ann", 1, 1), change("bob", 1, 1))
    for name, value in {**ENVIRONMENT, "STARLING_EXPORTS": json.dumps(definitions)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(command, "export_job", lambda _: nullcontext(job))
    monkeypatch.setattr(command, "stop_at_signals", lambda _: Event())
    monkeypatch.setattr(command, "configure_logs", lambda *_: None)
    capsys.readouterr()  # the log so far

    def printed(*words: str, code: int = 0) -> list[list[str]]:
        monkeypatch.setattr(sys, "argv", ["exports", *words])
        with capture_logs():  # they would be in the output
            assert command.main() == code
        return [line.split() for line in capsys.readouterr().out.splitlines()]

    head, good, bad = printed("run", code=1)
    assert head == ["export", "run", "state", "rows", "rejected", "at", "message"]
    assert good[:5] == ["good", "2", "done", "1", "1"]
    assert bad[:5] == ["bad", "1", "failed", "0", "0"]
    assert printed("run", "good") == [head, ["good:", "no", "new", "records"]]
    assert [row[:3] for row in printed("status", "good")[1:]] == [["good", "2", "done"], ["good", "1", "failed"]]
    assert [row[:4] for row in printed("rejects", "good")[1:]] == [["2", "acme/vip/bob", "1", "23514"]]
    monkeypatch.setattr(sys, "argv", ["exports", "run", "absent"])
    assert command.main() == 2
    assert capsys.readouterr().err == "no export is called absent: add it to STARLING_EXPORTS (now: good, bad)\n"


@pytest.mark.long
def test_the_process_exports_and_shows_no_secret(rig: Rig) -> None:
    definitions = {"good": rig.to_postgres("memberships", "members"), "bad": rig.to_postgres("memberships", "members")}
    rig.created(rig.job(**definitions), "good")
    rig.add("membership_changes", change("ann", 1, 1))
    job = process(rig, definitions, {"good": PASSWORD, "bad": WRONG})
    printed, log = job.communicate()
    assert job.returncode == 1, log
    good, bad = printed.splitlines()[1:]
    assert good.split()[:5] == ["good", "2", "done", "1", "0"]
    assert bad.endswith("correct the entry 'bad' of STARLING_EXPORTS_PASSWORDS")
    assert PASSWORD not in printed + log
    assert WRONG not in printed + log


@pytest.mark.long
def test_a_process_that_is_killed_in_mid_run_loses_and_doubles_nothing(rig: Rig) -> None:
    definitions = {"one": rig.to_postgres("memberships", "members", columns=["changed_at"])}
    rig.created(rig.job(**definitions))
    users = [f"u{number:06}" for number in range(150_000)]
    rig.add("membership_changes", *[change(user, 1, 1) for user in users])
    job = process(rig, definitions, {"one": PASSWORD})
    count = f"SELECT count(*) FROM {rig.schema}.members"  # noqa: S608 - the name is ours
    eventually(lambda: rig.sql(count)[0][0] or job.poll() is not None, 300)
    job.kill()
    job.communicate()
    ((written,),) = rig.sql(count)
    assert 0 < written < len(users)
    newest = rig.job(**definitions).runs(["one"])[0]
    assert (newest.run, newest.state) == (2, "running")
    rig.add("membership_changes", change(users[0], 2, 2))
    again = process(rig, definitions, {"one": PASSWORD})
    printed, log = again.communicate()
    assert again.returncode == 0, log
    assert printed.splitlines()[1].split()[:5] == ["one", "2", "done", str(len(users)), "0"]
    assert rig.done(rig.job(**definitions)) == (3, 1, 0)
    found = rig.table("members", "user_id, row_version")
    assert found == [(users[0], 2), *[(user, 1) for user in users[1:]]]
