"""The commands of the API run against an installation that the environment names."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from typer.testing import CliRunner

from starling_cli.app import build_app, options_first
from starling_cli.commands.common import REMOTE_TOKEN, REMOTE_URL, api_at
from starling_cli.commands.remote import event_types, traits
from starling_common.security.sealing import parse_keys
from starling_local.errors import NotPossible
from starling_local.instance import NoInstanceError

OUTCOME = {
    "received_at": "2026-01-01T00:00:00.000Z", "user_id": None, "outcome": "REFUSED", "event_id": None, "code": "bad_timestamp",
    "message": "no time",
}  # fmt: skip


rotations: list[str] = []


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        items = [{"key": self.headers["Authorization"]}, {"key": self.path.partition("?")[0]}]
        if self.path.startswith("/v1/outcomes?"):
            items = [OUTCOME | {"message_id": self.path}]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"items": items, "next_cursor": None}).encode())

    def do_POST(self) -> None:
        rotations.append(self.path)
        lost = {"kind": "target", "key": "mail", "reason": "the key '2025' is missing"}
        complete = len(rotations) != 2
        answer = {"key_id": "2027", "rewritten": [{"kind": "webhook", "key": "crm"}], "unreadable": [lost], "complete": complete}
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        pass


@pytest.fixture
def remote() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()
    thread.join()


def test_the_environment_names_the_installation_and_its_token(remote: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(REMOTE_URL, remote)
    monkeypatch.setenv(REMOTE_TOKEN, "t")
    assert [segment["key"] for segment in api_at(None).segments()] == ["Bearer t", "/v1/segments"]
    with pytest.raises(NoInstanceError):  # A directory on the command line wins.
        api_at(tmp_path)


def test_an_address_without_a_token_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REMOTE_URL, "https://starling.example.com")
    monkeypatch.delenv(REMOTE_TOKEN, raising=False)
    with pytest.raises(NotPossible, match=f"{REMOTE_URL} is set without a token"):
        api_at(None)


def test_outcomes_of_an_installation(remote: str) -> None:
    where = ("--url", remote, "--token", "t")
    shown = CliRunner().invoke(build_app(), options_first(["outcomes", "--outcome", "refused", "--user", "ada", *where]))
    assert "/v1/outcomes?user_id=ada&outcome=REFUSED" in shown.output
    assert "bad_timestamp: no time" in shown.output
    as_json = CliRunner().invoke(build_app(), options_first(["outcomes", "--message-id", "m", "--json", *where]))
    assert json.loads(as_json.output)["message_id"].startswith("/v1/outcomes?message_id=m&")


def test_secrets_are_rotated_until_all_are_done_and_an_unreadable_one_fails_the_command(remote: str) -> None:
    rotations.clear()
    where = ("--url", remote, "--token", "t")
    shown = CliRunner().invoke(build_app(), options_first(["secrets", "rotate", "--dry-run", *where]))
    assert (shown.exit_code, rotations) == (1, ["/v1/secrets/rotate?dry_run=true"])
    assert "webhook crm: would be encrypted with the key 2027" in shown.output
    assert "target mail: the key '2025' is missing" in shown.output
    done = CliRunner().invoke(build_app(), options_first(["secrets", "rotate", "--json", *where]))
    assert (done.exit_code, rotations[1:]) == (1, ["/v1/secrets/rotate"] * 2)
    assert [json.loads(line)["complete"] for line in done.output.splitlines()] == [False, True]


def test_a_new_key_is_printed_as_the_settings_take_it() -> None:
    [line] = CliRunner().invoke(build_app(), ["secrets", "new-key", "--id", "2027"]).output.splitlines()
    assert set(parse_keys(line, "STARLING_SECRETS__KEYS")) == {"2027"}
    assert CliRunner().invoke(build_app(), ["secrets", "new-key", "--id", "a=b"]).exit_code != 0


def test_computed_traits_of_an_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    trait = {"key": "ltv", "version": 2, "status": "bootstrapping", "name": "Life-time value", "progress": {"percent": 25.0}}

    class Api:
        def definitions(self, path: str) -> list[dict[str, object]]:
            assert path == "/v1/computed-traits"
            return [trait]

        def definition(self, _path: str, key: str) -> dict[str, object] | None:
            return trait if key == "ltv" else None

    monkeypatch.setattr(traits, "api_at", lambda _: Api())
    assert "ltv  2        bootstrapping  Life-time value" in CliRunner().invoke(build_app(), ["traits", "list"]).output
    assert json.loads(CliRunner().invoke(build_app(), ["traits", "show", "ltv"]).output) == trait
    assert "there is no computed trait 'rich'" in str(CliRunner().invoke(build_app(), ["traits", "show", "rich"]).exception)


def test_event_types_of_an_installation(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    properties = [{"name": "revenue", "type": "number"}, {"name": "tax", "type": "number", "archived": True}]
    order = {"key": "order", "version": 2, "status": "failed", "event": "Order Completed", "properties": properties}
    sent: list[object] = []

    class Api:
        def definitions(self, _path: str) -> list[dict[str, object]]:
            return [order]

        def definition(self, _path: str, key: str) -> dict[str, object] | None:
            return order if key == "order" else None

        def put(self, path: str, document: object) -> dict[str, object]:
            sent.append((path, document))
            return order

    monkeypatch.setattr(event_types, "api_at", lambda _: Api())
    assert "order  2        failed  Order Completed  1" in CliRunner().invoke(build_app(), ["event-types", "list"]).output
    assert json.loads(CliRunner().invoke(build_app(), ["event-types", "show", "order"]).output) == order
    assert "there is no event type 'x'" in str(CliRunner().invoke(build_app(), ["event-types", "show", "x"]).exception)
    file = tmp_path / "order.json"
    file.write_text('{"key": "order"}')
    done = CliRunner().invoke(build_app(), ["event-types", "apply", str(file)])
    assert (done.output, sent) == (
        "order is at version 2; its table in SQL is event_order\n",
        [("/v1/event-types", {"key": "order"})],
    )


@pytest.mark.parametrize(
    ("states", "arguments", "output", "code"),
    [
        (["waiting"], [], "margin: waiting", 0),
        (["waiting", "running", "active"], ["--wait"], "margin: active", 0),
        (["running", "refused"], ["--wait"], "margin: refused: too large", 1),
    ],
)
def test_a_trait_in_sql_runs_now(
    monkeypatch: pytest.MonkeyPatch, states: list[str], arguments: list[str], output: str, code: int
) -> None:
    left = iter(states)

    class Api:
        def run_trait(self, key: str) -> dict[str, object]:
            return self.definition("", key)

        def definition(self, _path: str, key: str) -> dict[str, object]:
            assert key == "margin"
            status = next(left)
            return {"key": key, "status": status, "last_run": {"message": "too large" if status == "refused" else None}}

    monkeypatch.setattr(traits, "api_at", lambda _: Api())
    monkeypatch.setattr(traits, "_POLL_SECONDS", 0.0)
    result = CliRunner().invoke(build_app(), ["traits", "run", "margin", *arguments])
    assert (result.output.strip(), result.exit_code) == (output, code)


def test_the_wait_for_a_run_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    class Api:
        def run_trait(self, _key: str) -> dict[str, object]:
            return {"status": "waiting", "last_run": {"message": None}}

    monkeypatch.setattr(traits, "api_at", lambda _: Api())
    result = CliRunner().invoke(build_app(), ["traits", "run", "margin", "--wait", "--timeout", "0s"])
    assert "the run of 'margin' is still waiting" in str(result.exception)
