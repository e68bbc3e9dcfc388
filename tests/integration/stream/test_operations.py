"""What operators ask of the states, beside a running worker."""

import json
import threading
from contextlib import closing
from typing import Any

import pytest

from starling_common.database import Database
from starling_stream.inspect.operations import main
from tests.integration.stream.rig import Rig, wait_until
from tests.integration.stream.test_worker_faults import _counts, _dead, _expected
from tests.integration.stream.test_worker_tier import _based_on, _disagreements, _send


@pytest.fixture
def addressed(tiered: Rig, monkeypatch: pytest.MonkeyPatch) -> Rig:
    """The operations find the stack in the environment."""
    assert tiered.cassandra is not None
    monkeypatch.setenv("STARLING_KAFKA__BROKERS", tiered.brokers)
    monkeypatch.setenv("STARLING_REGISTRY__URL", tiered.registry_url)
    monkeypatch.setenv("STARLING_CASSANDRA__CONTACT_POINTS", tiered.cassandra.contact_points)
    monkeypatch.setenv("STARLING_CASSANDRA__PORT", str(tiered.cassandra.port))
    monkeypatch.setenv("STARLING_CASSANDRA__KEYSPACE", tiered.cassandra.keyspace)
    return tiered


def test_a_user_is_shown_and_tiers_are_compared_beside_a_running_worker(addressed: Rig, capsys: pytest.CaptureFixture[str]) -> None:
    rig, base = addressed, ["--stage", addressed.stage, "--disk", str(addressed.directory / "w0")]
    sent = _send(rig, 300)
    rig.wait_settled([rig.start()])
    wait_until(lambda: _disagreements(rig) == [], "the tier to hold everything")
    assert main([*base, "inspect", "u7"]) == 0
    shown = json.loads(capsys.readouterr().out)
    count = _expected(sent)[b"default/u7"][-1]
    assert shown["key"] == "default/u7"
    assert {tier: (found["version"], found["state"]["total"]) for tier, found in shown["tiers"].items()} == {
        "changelog": (shown["tiers"]["changelog"]["version"], count),
        "cassandra": (shown["tiers"]["changelog"]["version"], count),
        "disk w0": (shown["tiers"]["changelog"]["version"], count),
    }
    assert shown["tiers"]["cassandra"]["due"].startswith("1970-01-01T01:")
    assert main([*base, "verify"]) == 0
    assert f"{rig.stage}: no faults" in capsys.readouterr().out


def test_a_row_that_was_tampered_with_is_found_and_rebuilding_its_partition_mends_it(
    addressed: Rig, capsys: pytest.CaptureFixture[str]
) -> None:
    rig, base = addressed, ["--stage", addressed.stage]
    sent = _send(rig, 300)
    first = rig.start()
    rig.wait_settled([first])
    wait_until(lambda: _disagreements(rig) == [], "the tier to hold everything")
    assert main([*base, "inspect", "u7"]) == 0
    partition = json.loads(capsys.readouterr().out)["partition"]
    _tamper(rig, b"default/u7")
    assert main([*base, "verify", "--partition", str(partition)]) == 1
    assert "b'default/u7': version 77 is newer than the changelog's" in capsys.readouterr().out
    rebuilding = threading.Thread(target=main, args=([*base, "rebuild", str(partition)],))
    rebuilding.start()
    wait_until(lambda: _dead(first), "the worker to leave, for it holds what is to be rebuilt")
    assert first.process.returncode == 1
    second = rig.start()
    rebuilding.join(60)
    assert f"partition {partition}: rebuilt" in capsys.readouterr().out
    sent += _send(rig, 300)
    rig.wait_settled([second])
    assert (_based_on(second, "log"), _based_on(second, "disk")) == (1, rig.partitions - 1)
    assert main([*base, "verify"]) == 0
    assert _counts(rig) == _expected(sent)


def test_a_timer_that_a_restore_would_not_find_is_told(addressed: Rig, capsys: pytest.CaptureFixture[str]) -> None:
    rig, base = addressed, ["--stage", addressed.stage]
    _send(rig, 300)
    worker = rig.start()
    rig.wait_settled([worker])
    assert worker.terminate() == 0
    assert main([*base, "verify"]) == 0
    _lose_due(rig, b"default/u7")
    assert main([*base, "verify"]) == 1
    assert "b'default/u7': due, and not in the index" in capsys.readouterr().out


def test_a_stage_that_keeps_nothing_is_named(addressed: Rig, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--stage", addressed.stage, "verify"]) == 1
    assert f"no states of {addressed.stage} are kept in Cassandra" in capsys.readouterr().err


def _entry(rig: Rig, database: Database, table: str, columns: str, key: bytes) -> list[Any]:
    """The values of these columns for a key of this rig's."""
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
