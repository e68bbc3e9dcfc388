"""Operators' commands on states, beside a running worker."""

import json
import threading
from contextlib import closing
from typing import Any

import pytest

from starling_common.cassandra.database import Database
from starling_stream.inspect.operations import main
from tests.integration.stream.checks import counts_by_key, expected_counts, inconsistencies, is_dead, send_events, tasks_based_on
from tests.integration.stream.rig import Rig, wait_until


@pytest.fixture
def addressed(with_backing_store: Rig, monkeypatch: pytest.MonkeyPatch) -> Rig:
    """The commands find the stack in the environment."""
    assert with_backing_store.cassandra is not None
    monkeypatch.setenv("STARLING_KAFKA__BROKERS", with_backing_store.brokers)
    monkeypatch.setenv("STARLING_REGISTRY__URL", with_backing_store.registry_url)
    monkeypatch.setenv("STARLING_CASSANDRA__CONTACT_POINTS", with_backing_store.cassandra.contact_points)
    monkeypatch.setenv("STARLING_CASSANDRA__PORT", str(with_backing_store.cassandra.port))
    monkeypatch.setenv("STARLING_CASSANDRA__KEYSPACE", with_backing_store.cassandra.keyspace)
    return with_backing_store


@pytest.mark.long
def test_a_user_is_printed_and_stores_are_compared_beside_a_running_worker(
    addressed: Rig, capsys: pytest.CaptureFixture[str]
) -> None:
    rig, base = addressed, ["--stage", addressed.stage, "--disk", str(addressed.directory / "w0")]
    sent = send_events(rig, 300)
    rig.wait_settled([rig.start()])
    wait_until(lambda: inconsistencies(rig) == [], "the backing store to be complete")
    assert main([*base, "inspect", "u7"]) == 0
    shown = json.loads(capsys.readouterr().out)
    count = expected_counts(sent)[b"default/u7"][-1]
    assert shown["key"] == "default/u7"
    assert {store: (found["version"], found["state"]["total"]) for store, found in shown["stores"].items()} == {
        "changelog": (shown["stores"]["changelog"]["version"], count),
        "cassandra": (shown["stores"]["changelog"]["version"], count),
        "disk w0": (shown["stores"]["changelog"]["version"], count),
    }
    assert shown["stores"]["cassandra"]["due"].startswith("1970-01-01T01:")
    assert main([*base, "verify"]) == 0
    assert f"{rig.stage}: no violations" in capsys.readouterr().out


@pytest.mark.long
def test_a_wrong_row_is_found_and_a_rebuild_of_its_partition_repairs_it(addressed: Rig, capsys: pytest.CaptureFixture[str]) -> None:
    rig, base = addressed, ["--stage", addressed.stage]
    sent = send_events(rig, 300)
    first = rig.start()
    rig.wait_settled([first])
    wait_until(lambda: inconsistencies(rig) == [], "the backing store to be complete")
    assert main([*base, "inspect", "u7"]) == 0
    partition = json.loads(capsys.readouterr().out)["partition"]
    _tamper(rig, b"default/u7")
    assert main([*base, "verify", "--partition", str(partition)]) == 1
    assert "b'default/u7': version 77 is newer than the changelog's" in capsys.readouterr().out
    rebuilding = threading.Thread(target=main, args=([*base, "rebuild", str(partition)],))
    rebuilding.start()
    wait_until(lambda: is_dead(first), "the worker to leave, because its partition is rebuilt")
    assert first.process.returncode == 1
    second = rig.start()
    rebuilding.join(60)
    assert f"partition {partition}: rebuilt" in capsys.readouterr().out
    sent += send_events(rig, 300)
    rig.wait_settled([second])
    assert (tasks_based_on(second, "log"), tasks_based_on(second, "disk")) == (1, rig.partitions - 1)
    assert main([*base, "verify"]) == 0
    assert counts_by_key(rig) == expected_counts(sent)


@pytest.mark.long
def test_a_timer_missing_from_the_due_index_is_found(addressed: Rig, capsys: pytest.CaptureFixture[str]) -> None:
    rig, base = addressed, ["--stage", addressed.stage]
    send_events(rig, 300)
    worker = rig.start()
    rig.wait_settled([worker])
    assert worker.terminate() == 0
    assert main([*base, "verify"]) == 0
    _lose_due(rig, b"default/u7")
    assert main([*base, "verify"]) == 1
    assert "b'default/u7': due, and not in the index" in capsys.readouterr().out


def test_a_stage_without_states_is_named(addressed: Rig, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--stage", addressed.stage, "verify"]) == 1
    assert f"no states of {addressed.stage} are stored in Cassandra" in capsys.readouterr().err


def _entry(rig: Rig, database: Database, table: str, columns: str, key: bytes) -> list[Any]:
    """Return the values of these columns for a key of this rig."""
    found = database.read(f"SELECT log, {columns} FROM {{ks}}.{table} WHERE key = ? ALLOW FILTERING", (key,))  # noqa: S608
    topics = database.read("SELECT topics FROM {ks}.state_facts WHERE stage = ?", (rig.stage,))[0]["topics"]
    (row,) = [one for one in found if one["log"] == topics[f"{rig.stage}-state-changelog"]]
    return list(row.values())


def _lose_due(rig: Rig, key: bytes) -> None:
    assert rig.cassandra is not None
    with closing(Database(rig.cassandra)) as database:
        entry = _entry(rig, database, "state_dues", "source_partition, incarnation, bucket, slot", key)
        statement = (
            "DELETE FROM {ks}.state_dues "
            "WHERE log = ? AND source_partition = ? AND incarnation = ? AND bucket = ? AND slot = ? AND key = ?"
        )
        database.write(statement, (*entry, key))


def _tamper(rig: Rig, key: bytes) -> None:
    assert rig.cassandra is not None
    database = Database(rig.cassandra)
    row = _entry(rig, database, "states", "source_partition, incarnation, bucket", key)
    statement = (
        "UPDATE {ks}.states SET row = ? WHERE log = ? AND source_partition = ? AND incarnation = ? AND bucket = ? AND key = ?"
    )
    database.write(statement, ((77).to_bytes(8, "big") + bytes(8) + b"spoilt", *row, key))
    database.close()
