"""The disasters of docs/how-to/backup.md on a whole platform, with the commands of that page: `make disasters`.

A platform of its own, because its stages are stopped and started by the `starling` command.
"""

import json
import os
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

pytestmark = pytest.mark.skipif(os.environ.get("STARLING_DISASTERS") != "all", reason="make disasters")
USERS = 200
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
    for stage in ("projector", "projector-events"):
        installation.starling("stage", "rewind", stage)
    installation.starling("down")
    installation.starling("up", "--detach", "--no-spark")
    installation.starling("settle")
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
