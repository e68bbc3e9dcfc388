"""The disasters of docs/how-to/backup.md on a whole platform, with the commands of that page: `make disasters`.

A platform of its own, because its stages are stopped and started by the `starling` command.
"""

import json
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from starling_local.instance import Instance
from starling_local.testing import free_base
from tests.system.installed import Installation
from tests.system.nodetool import nodetool

pytestmark = pytest.mark.skipif(os.environ.get("STARLING_DISASTERS") != "all", reason="make disasters")
USERS = 200
NOT_RESTORED = {"states", "state_dues", "state_floor", "state_facts", "definition_claims", "list_writers"}
"""Tables that are filled again, and would be wrong or locked as of another instant: see docs/how-to/backup.md."""
MAY_BE_EMPTY = {"list_writers", "definition_claims", "state_dues"}
"""Tables without a snapshot while nothing is in them, as of dues that are not near."""
BUYERS = {"key": "buyers", "name": "Buyers", "where": {"event": "Order Completed"}}


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    found = Installation(tmp_path_factory.mktemp("disasters"))
    with free_base() as base:
        found.starling("up", "--detach", "--no-spark", "--port-base", str(base))
        try:
            with found.api() as api:
                assert api.post("/v1/segments", json=BUYERS).status_code == 201
            found.starling("settle")
            found.track(range(USERS), "Order Completed")
            found.track(range(USERS // 2), "Page Read")
            found.starling("settle")
            yield found
        finally:
            found.starling("down")


def test_cassandra_lost(installation: Installation) -> None:
    before = installation.answers(USERS)
    assert len(before["members"]) == USERS
    installation.execute("DROP KEYSPACE starling")
    started = time.monotonic()
    installation.starling("down")
    installation.starling("up", "--only", "deploy", "--detach")
    installation.fill_read_models_again()
    sys.stderr.write(json.dumps({"users": USERS, "seconds_from_the_loss_to_the_answers": round(time.monotonic() - started)}) + "\n")
    assert installation.answers(USERS) == before
    for stage in ("normalizer", "segmenter"):
        assert f"{stage}: no violations" in installation.starling("state", "verify", "--stage", stage)
    # The definitions can be changed, and the states continue: a user who was counted before does not enter again.
    with installation.api() as api:
        changed = api.put("/v1/segments/buyers", json={**BUYERS, "name": "Buyers of all time"})
        assert changed.status_code == 200, changed.text
    installation.track(range(USERS + 10), "Order Completed")
    installation.starling("settle")
    with installation.api() as api:
        assert api.get("/v1/segments/buyers/size").json()["size"] == USERS + 10


def test_cassandra_restored_from_a_snapshot(installation: Installation, tmp_path: Path) -> None:
    """A list is in Cassandra alone: only the snapshot has its members. All that came after it is read from Kafka again."""
    instance, backup = Instance(installation.data_dir), tmp_path / "backup"
    with installation.api() as api:
        assert api.put("/v1/lists/vips").status_code == 201
        assert api.put("/v1/lists/vips/members", json={"users": ["u1", "u2", "u3"]}).status_code in (200, 202)
    installation.starling("settle")
    started = time.monotonic()
    with nodetool(instance, tmp_path) as tool:
        tool("snapshot", "--tag", "rehearsal", "starling")
        tables = _copied_snapshot(installation.data_dir / "cassandra/data/starling", "rehearsal", backup)
        tool("clearsnapshot", "-t", "rehearsal", "--", "starling")
    taken = time.monotonic() - started
    assert tables >= {"list_members", "segment_members", "user_profiles", *NOT_RESTORED - MAY_BE_EMPTY}
    installation.track(range(USERS + 20, USERS + 30), "Order Completed")
    installation.starling("settle")
    before = installation.answers(USERS)
    assert installation.list_members("vips") == ["u1", "u2", "u3"]

    installation.execute("DROP KEYSPACE starling")
    started = time.monotonic()
    installation.starling("down")
    installation.starling("up", "--only", "deploy", "--detach")
    with nodetool(instance, tmp_path) as tool:
        for table in sorted(tables - NOT_RESTORED):
            tool("import", "--copy-data", "starling", table, str(backup / table))
    imported = time.monotonic() - started
    installation.fill_read_models_again()
    times = {"snapshot": taken, "until_the_tables_are_imported": imported, "until_the_answers": time.monotonic() - started}
    sys.stderr.write(json.dumps({"users": USERS, "seconds": {name: round(value, 1) for name, value in times.items()}}) + "\n")
    assert installation.answers(USERS) == before
    assert installation.list_members("vips") == ["u1", "u2", "u3"]
    for stage in ("normalizer", "segmenter"):
        assert f"{stage}: no violations" in installation.starling("state", "verify", "--stage", stage)
    with installation.api() as api:
        assert api.post("/v1/lists/vips/members", json={"users": ["u4"]}).status_code in (200, 202)
        changed = api.put("/v1/segments/buyers", json={**BUYERS, "name": "Buyers again"})
        assert changed.status_code == 200, changed.text


def _copied_snapshot(keyspace: Path, tag: str, backup: Path) -> set[str]:
    """Copy the files of a snapshot; return the tables that have any."""
    found = set()
    for snapshot in keyspace.glob(f"*/snapshots/{tag}"):
        table = re.sub(r"-[0-9a-f]{32}$", "", snapshot.parents[1].name)
        if any(snapshot.glob("*-Data.db")):
            shutil.copytree(snapshot, backup / table)
            found.add(table)
    return found
