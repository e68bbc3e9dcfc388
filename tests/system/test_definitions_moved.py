"""Definitions that one installation exports and another one imports are identical: `make disasters`.

Two platforms, each with a broker and a database of its own, one after the other.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from starling_local.testing import free_base
from tests.system.installed import Installation

pytestmark = pytest.mark.skipif(os.environ.get("STARLING_DISASTERS") != "all", reason="make disasters")

BUYERS: Final[dict[str, Any]] = {
    "key": "buyers",
    "name": "Käufer",
    "where": {"trait": "computed.spent", "op": "gt", "value": 10},
    "tags": ["a", "b"],
    "owner": "crm",
}
VIP: Final[dict[str, Any]] = {"key": "a-vip", "name": "VIP", "where": {"all": [{"segment": "buyers"}, {"list": "fair"}]}}
HOOK_URL: Final = "https://hooks.slack.example/s3cret"
DEFINED: Final[tuple[tuple[str, str, dict[str, Any]], ...]] = (
    ("PUT", "/v1/lists/fair", {"name": "Fair", "description": "of 2026"}),
    ("POST", "/v1/computed-traits", {"key": "spent", "event": "Buy", "measure": {"sum": "revenue"}}),
    ("POST", "/v1/segments", BUYERS),
    ("POST", "/v1/segments", VIP),
    ("POST", "/v1/segments", {"key": "gone", "name": "Gone", "where": {"everyone": True}}),
    ("POST", "/v1/webhooks", {"key": "crm", "url": "https://crm.example/hook", "segments": ["buyers"], "rate": 5}),
    ("POST", "/v1/targets", {
        "key": "smtp", "channel": "email", "host": "smtp.example.com", "port": 465, "tls": "tls", "from": "shop@example.com",
        "username": "shop", "password": "s3cret-of-smtp",
    }),
    ("POST", "/v1/targets", {"key": "sales", "channel": "slack", "url": HOOK_URL, "segments": ["buyers"]}),
    ("POST", "/v1/campaigns", {
        "key": "welcome", "name": "Willkommen", "trigger": {"enter": "buyers"}, "channel": "email", "target": "smtp",
        "variants": [{"key": "a", "weight": 100, "content": {"subject": "Hello", "text": "Hello {{ user_id }}"}}],
    }),
)  # fmt: skip
SECRETS: Final = {"target smtp": {"/password": "s3cret-of-smtp"}, "target sales": {"/url": HOOK_URL}}


@contextmanager
def running(data_dir: Path) -> Iterator[Installation]:
    found = Installation(data_dir)
    with free_base() as base:
        found.starling("up", "--detach", "--no-spark", "--port-base", str(base))
        try:
            yield found
        finally:
            found.starling("down")


def test_an_import_of_another_installation_exports_the_same(tmp_path: Path) -> None:
    file = tmp_path / "definitions.jsonl"
    with running(tmp_path / "old") as old, old.api() as api:
        for method, path, document in DEFINED:
            answer = api.request(method, path, json=document)
            assert answer.status_code == 201, answer.text
        assert api.put("/v1/segments/a-vip", json={**VIP, "name": "VIPs"}).status_code == 200
        assert api.post("/v1/segments/buyers/pause").status_code == 200
        assert api.delete("/v1/segments/gone").status_code == 204
        assert api.post("/v1/targets/sales/disable").status_code == 200
        old.starling("settle")
        file.write_text(old.starling("definitions", "export"))
    exported = [json.loads(line) for line in file.read_text().splitlines()]
    assert "s3cret" not in file.read_text()
    assert [(one["kind"], one["document"]["key"], one.get("paused", one.get("disabled", False))) for one in exported] == [
        ("list", "fair", False),
        ("computed-trait", "spent", False),
        ("segment", "buyers", True),
        ("segment", "a-vip", False),
        ("webhook", "crm", False),
        ("target", "sales", True),
        ("target", "smtp", False),
        ("campaign", "welcome", False),
    ]
    secrets = tmp_path / "secrets.json"
    secrets.write_text(json.dumps(SECRETS))

    with running(tmp_path / "new") as new:
        assert new.starling("definitions", "export") == ""
        applied = new.starling("definitions", "apply", str(file), "--secrets", str(secrets))
        assert applied.count(": created") == len(exported), applied
        new.starling("settle")
        assert new.starling("definitions", "export") == file.read_text()
        again = new.starling("definitions", "apply", str(file))
        assert again.count(": unchanged\n") == len(exported), again
