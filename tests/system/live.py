"""Calls of the running platform."""

import subprocess
import sys
import uuid
from typing import Any

from tests.system.conftest import Platform


def define(platform: Platform, where: dict[str, Any]) -> str:
    """A new segment of this test's own, in force."""
    key = f"s{uuid.uuid4().hex[:10]}"
    answer = platform.api.post("/v1/segments", json={"key": key, "name": key, "where": where})
    assert answer.status_code == 201, answer.text
    platform.settle()
    assert platform.api.get(f"/v1/segments/{key}").json()["status"] == "active"
    return key


def members(platform: Platform, key: str) -> set[str]:
    return {item["user_id"] for item in platform.api.get(f"/v1/segments/{key}/members").json()["items"]}


def track(platform: Platform, user: str, event: str, **properties: Any) -> None:
    answer = platform.ingest.post("/v1/track", json={"userId": user, "event": event, "properties": properties})
    assert (answer.status_code, answer.json()["success"]) == (200, True)


def starling(platform: Platform, *arguments: str) -> str:
    command = [sys.executable, "-m", "starling_cli", *arguments, "--data-dir", str(platform.instance.data_dir)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout
