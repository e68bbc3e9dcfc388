"""A local platform of a test's own, which the `starling` command stops and starts."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from starling_common.cassandra.sessions import open_session
from starling_common.settings import Cassandra
from starling_local.instance import Instance
from starling_local.stack.parts.services import API_TOKEN, WRITE_KEY
from starling_local.testing import addresses


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

    def answers(self, users: int) -> dict[str, Any]:
        """Return what the API answers on definitions, members and users, without the times of the answers themselves."""
        found: dict[str, Any] = {}
        with self.api() as api:
            each = [f"/v1/users/u{one}{part}" for one in range(0, users, 20) for part in ("", "/segments", "/events")]
            for path in ["/v1/segments", "/v1/segments/buyers", "/v1/segments/buyers/versions", "/v1/segments/buyers/size", *each]:
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
