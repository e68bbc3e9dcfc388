"""The disasters of docs/how-to/backup.md on a whole platform, with the commands of that page: `make disasters`.

A platform of its own, because its stages are stopped and started by the `starling` command.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from starling_common.cassandra.sessions import open_session
from starling_common.settings import Cassandra
from starling_local.instance import Instance
from starling_local.stack.parts.services import API_TOKEN, WRITE_KEY
from starling_local.testing import addresses, free_base
from tests.system.nodetool import nodetool

pytestmark = pytest.mark.skipif(os.environ.get("STARLING_DISASTERS") != "all", reason="make disasters")
USERS = 200
NOT_RESTORED = {"states", "state_dues", "state_floor", "state_facts", "definition_claims", "list_writers"}
"""Tables that are filled again, and would be wrong or locked as of another instant: see docs/how-to/backup.md."""
BUYERS = {"key": "buyers", "name": "Buyers", "where": {"event": "Order Completed"}}


class Installation:
    """A local platform, which the commands of the guide stop and start."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir

    def starling(self, *words: str) -> str:
        """Run a command. Raises: AssertionError with its errors."""
        command = [sys.executable, "-m", "starling_cli", *words, "--data-dir", str(self.data_dir)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
        assert done.returncode == 0, f"{' '.join(words)}: {done.stdout}{done.stderr}"
        return done.stdout

    def api(self) -> httpx.Client:
        """Return a client of the API, which has the token of the local stack."""
        at = addresses(Instance(self.data_dir))
        return httpx.Client(base_url=at.api_url, headers={"Authorization": f"Bearer {API_TOKEN}"}, timeout=60, trust_env=False)

    def track(self, users: range, event: str) -> None:
        """Send one event and one profile of each user."""
        items: list[dict[str, Any]] = [{"type": "track", "userId": f"u{one}", "event": event} for one in users]
        items += [{"type": "identify", "userId": f"u{one}", "traits": {"number": one}} for one in users]
        url = addresses(Instance(self.data_dir)).ingest_url
        answer = httpx.post(f"{url}/v1/batch", json={"batch": items}, auth=(WRITE_KEY, ""), timeout=60, trust_env=False)
        assert answer.status_code == 200, answer.text

    def answers(self) -> dict[str, Any]:
        """Return what the API answers on definitions, members and users, without the times of the answers themselves."""
        found: dict[str, Any] = {}
        with self.api() as api:
            users = [f"/v1/users/u{one}{part}" for one in range(0, USERS, 20) for part in ("", "/segments", "/events")]
            for path in ["/v1/segments", "/v1/segments/buyers", "/v1/segments/buyers/versions", "/v1/segments/buyers/size", *users]:
                answer = api.get(path)
                assert answer.status_code == 200, f"{path}: {answer.text}"
                found[path] = _without_as_of(answer.json())
            found["members"] = sorted(_members(api, "buyers"))
        found["export"] = self.starling("definitions", "export")
        return found

    def list_members(self, key: str) -> list[str]:
        """Return the members of an uploaded list."""
        with self.api() as api:
            answer = api.get(f"/v1/lists/{key}/members")
            assert answer.status_code == 200, answer.text
            return sorted(item["user_id"] for item in answer.json()["items"])

    def fill_read_models_again(self) -> None:
        """The steps of the guide after the tables were created again."""
        for stage in ("projector", "projector-events"):
            self.starling("stage", "rewind", stage)
        self.starling("down")
        self.starling("up", "--detach", "--no-spark")
        self.starling("settle")

    def execute(self, statement: str) -> None:
        """Execute a statement of CQL."""
        at = addresses(Instance(self.data_dir))
        session = open_session(Cassandra(contact_points=at.cassandra_host, port=at.cassandra_port))
        try:
            session.execute(statement, timeout=120)
        finally:
            session.cluster.shutdown()


def _without_as_of(document: Any) -> Any:
    if isinstance(document, dict):
        return {key: _without_as_of(value) for key, value in document.items() if key != "as_of"}
    return [_without_as_of(one) for one in document] if isinstance(document, list) else document


def _members(api: httpx.Client, key: str) -> Iterator[str]:
    cursor: str | None = None
    while True:
        page = api.get(f"/v1/segments/{key}/members", params={} if cursor is None else {"cursor": cursor}).json()
        yield from (item["user_id"] for item in page["items"])
        cursor = page.get("next_cursor")
        if cursor is None:
            return


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
    before = installation.answers()
    assert len(before["members"]) == USERS
    installation.execute("DROP KEYSPACE starling")
    started = time.monotonic()
    installation.starling("down")
    installation.starling("up", "--only", "deploy", "--detach")
    installation.fill_read_models_again()
    sys.stderr.write(json.dumps({"users": USERS, "seconds_from_the_loss_to_the_answers": round(time.monotonic() - started)}) + "\n")
    assert installation.answers() == before
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
    assert tables >= {"list_members", "segment_members", "user_profiles", *NOT_RESTORED - {"list_writers", "definition_claims"}}
    installation.track(range(USERS + 20, USERS + 30), "Order Completed")
    installation.starling("settle")
    before = installation.answers()
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
    assert installation.answers() == before
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
