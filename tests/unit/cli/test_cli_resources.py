"""Commands that work with any installation, against the API with stores in memory: what they change, print and refuse."""

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from typer.testing import Result

from starling_cli.api_client import ApiRefused
from starling_cli.app import REMOTE_COMMANDS, build_app
from starling_cli.commands.remote import credentials, people, resources, segments
from starling_local.errors import NotPossible
from starling_rules.sql.incremental import incremental_of
from tests.unit.api.calls import SEGMENT, call
from tests.unit.api.memory import World
from tests.unit.cli.api_in_memory import client, run

HOOK = {"key": "crm", "url": "https://crm.example/hook", "segments": ["vip"]}
MAIL = {
    "key": "mail", "channel": "email", "host": "smtp.example.com", "port": 587, "tls": "starttls", "from": "shop@example.com",
    "username": "shop", "password": "hidden-password",
}  # fmt: skip
CAMPAIGN = {
    "key": "hello", "name": "Hello", "trigger": {"enter": "vip"}, "channel": "email", "target": "mail", "purpose": "transactional",
    "variants": [{"key": "a", "weight": 100, "content": {"subject": "Hello", "text": "Hello"}}],
}  # fmt: skip
VIEW = {"key": "per_day", "sql": "SELECT name, count(*) AS n FROM events GROUP BY name", "schedule": "0 4 * * *"}

Starling = Callable[..., Result]


@pytest.fixture
def world() -> World:
    made = World()
    for path, document in (("segments", SEGMENT), ("webhooks", HOOK), ("targets", MAIL), ("campaigns", CAMPAIGN), ("views", VIEW)):
        answer = call(made, "POST", f"/v1/{path}", json=document)
        assert answer.status_code == 201, answer.text
    return made


@pytest.fixture
def starling(world: World, monkeypatch: pytest.MonkeyPatch) -> Starling:
    modules: dict[str, ModuleType] = {
        **dict.fromkeys(("webhooks", "targets", "campaigns", "views", "lists"), resources),
        **dict.fromkeys(("tokens", "write-keys"), credentials),
        **dict.fromkeys(("users", "feed", "audit"), people),
        "segments": segments,
    }

    api = client(world)

    def invoke(*words: str, text: str | None = None) -> Result:
        return run(monkeypatch, modules[words[0]], api, *words, text=text)

    return invoke


def printed(done: Result) -> Any:
    assert done.exit_code == 0, (done.output, done.exception)
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("plural", "key", "shown"),
    [
        ("webhooks", "crm", "https://crm.example/hook"),
        ("targets", "mail", "email"),
        ("campaigns", "hello", "draft"),
        ("views", "per_day", "T04:00:00"),
    ],
)
def test_definitions_are_listed_shown_and_archived(starling: Starling, plural: str, key: str, shown: str) -> None:
    table = starling(plural, "list").stdout
    assert key in table
    assert shown in table
    assert printed(starling(plural, "list", "--json"))["key"] == key
    document = starling(plural, "show", key)
    assert printed(document)["key"] == key
    assert "hidden-password" not in document.stdout
    if plural == "targets":  # a campaign uses it
        assert starling("campaigns", "archive", "hello").exit_code == 0
    assert starling(plural, "archive", key).stdout.endswith(f"{key} is archived\n")
    assert printed(starling(plural, "show", key))["status"] == "archived"


def test_a_definition_is_applied_from_a_file_and_from_standard_input(starling: Starling, world: World, tmp_path: Path) -> None:
    file = tmp_path / "mail.json"
    file.write_text(json.dumps({**MAIL, "host": "mx.example.com"}))
    before = len(world.published)
    assert printed(starling("targets", "apply", str(file), "--dry-run"))["host"] == "mx.example.com"
    assert len(world.published) == before
    assert printed(starling("targets", "apply", str(file)))["version"] == 2
    assert printed(starling("targets", "apply", "-", text=file.read_text()))["version"] == 2, "a repetition changes nothing"
    refused = starling("targets", "apply", "-", text=json.dumps({**MAIL, "tls": "perhaps"})).exception
    assert isinstance(refused, ApiRefused)
    assert "/tls: wrong_type" in str(refused)
    for text, reason in (("{", "is not JSON"), ("[]", "one JSON object with a key"), ("{}", "one JSON object with a key")):
        done = starling("targets", "apply", "-", text=text).exception
        assert isinstance(done, NotPossible)
        assert reason in str(done)
    assert "No such file" in str(starling("targets", "apply", str(tmp_path / "none.json")).exception)


def test_a_webhook_gets_a_new_secret_and_a_target_is_disabled(starling: Starling) -> None:
    assert printed(starling("webhooks", "rotate-secret", "crm"))["secret"].startswith("whsec_")
    assert printed(starling("targets", "disable", "mail"))["status"] == "disabled"
    assert printed(starling("targets", "enable", "mail"))["status"] == "active"


def test_an_incremental_view_runs_now_and_in_full(starling: Starling, world: World) -> None:
    sql = "SELECT to_date(event_time) AS day, count(*) AS n FROM events GROUP BY to_date(event_time)"
    by_day = {**VIEW, "key": "by_day", "sql": sql, "incremental": {"column": "day"}}
    assert printed(starling("views", "apply", "-", text=json.dumps(by_day)))["incremental"]["watermark"] == "7d"
    found, place = [], ("acme", "by_day")
    for words in ((), ("--full",)):
        assert printed(starling("views", "run", "by_day", *words))["status"] == "waiting"
        field = incremental_of(world.sql_view_store.incremental[place])
        assert field is not None
        found.append(field.full)
        world.sql_view_store.rows[place] = world.sql_view_store.rows[place]._replace(state="active")
    assert found == [False, True]


def test_a_campaign_has_versions_and_a_dry_run_and_an_action_that_is_refused_has_its_reason(starling: Starling) -> None:
    assert starling("campaigns", "versions", "hello").stdout.split() == ["version", "revision", "action", "actor", "recorded", "at"]
    assert "not_yet" in str(starling("campaigns", "activate", "hello").exception), "this installation has no messenger"
    assert printed(starling("campaigns", "report", "hello"))["campaign"] == "hello"


def test_a_list_is_uploaded_changed_and_deleted(starling: Starling, tmp_path: Path) -> None:
    file = tmp_path / "ids.csv"
    file.write_text("ada\ngrace\n")
    assert starling("lists", "upload", "vips", str(file)).stdout == "vips has 2 members\n"
    assert starling("lists", "add", "vips", "-", text="mary\n").stdout == "1 ids are on vips\n"
    assert starling("lists", "remove", "vips", "-", text="ada\n").stdout == "1 ids are not on vips\n"
    assert set(starling("lists", "members", "vips").stdout.split()) == {"grace", "mary"}
    assert "vips" in starling("lists", "list").stdout
    assert printed(starling("lists", "show", "vips"))["key"] == "vips"
    assert starling("lists", "delete", "vips").stdout == "list vips is deleted\n"


@pytest.mark.parametrize(
    ("plural", "words", "field"),
    [("tokens", ("--role", "editor"), {"role": "editor"}), ("write-keys", ("--scope", "track"), {"scopes": ["track"]})],
)
def test_a_credential_is_created_rotated_and_revoked(
    starling: Starling, plural: str, words: tuple[str, ...], field: dict[str, Any]
) -> None:
    made = printed(starling(plural, "create", "shop", *words, "--json"))
    assert field.items() <= made.items()
    turned = starling(plural, "rotate", made["id"], "--overlap", "0s").stdout.splitlines()
    assert turned[0] == f"id: {made['id']}"
    assert turned[1].startswith("secret: st")
    assert made["secret"] not in turned[1]
    for shown in (starling(plural, "list"), starling(plural, "show", made["id"])):
        assert made["id"] in shown.stdout
        assert made["secret"] not in shown.stdout
    assert starling(plural, "revoke", made["id"]).stdout == f"{made['id']} is revoked\n"
    assert printed(starling(plural, "show", made["id"]))["revoked"] is True
    refused = starling(plural, "create", "shop", *words, "--expires", "yesterday").exception
    assert "/expires_at" in str(refused)


def test_who_changed_what_is_listed(starling: Starling) -> None:
    lines = [json.loads(line) for line in starling("audit", "--resource", "targets", "--json").stdout.splitlines()]
    assert [(line["method"], line["key"]) for line in lines] == [("POST", "mail")]
    assert "/v1/targets" in starling("audit").stdout


def test_an_unknown_user_is_named_and_has_no_segment(starling: Starling) -> None:
    assert "nemo" in str(starling("users", "show", "nemo").exception)
    assert starling("users", "segments", "nemo").stdout.split() == ["segment", "version", "entered", "at"]
    assert starling("users", "events", "nemo", "--json").stdout == ""


def test_the_feed_is_read_to_its_end_and_its_cursor_continues(starling: Starling) -> None:
    done = starling("feed", "--segment", "vip")
    assert (done.exit_code, done.stdout) == (0, "")
    cursor = done.stderr.removeprefix("cursor: ").strip()
    assert starling("feed", "--after", cursor).stderr == f"cursor: {cursor}\n"
    assert "bad_cursor" in str(starling("feed", "--after", "of another feed").exception)


def test_a_segment_has_its_history_and_is_archived(starling: Starling, world: World) -> None:
    for path in ("webhooks/crm", "campaigns/hello"):
        assert call(world, "DELETE", f"/v1/{path}").status_code == 204
    assert printed(starling("segments", "list", "--json"))["key"] == "vip"
    assert starling("segments", "history", "vip").exit_code == 0
    assert starling("segments", "archive", "vip").stdout == "segment vip is archived\n"


def test_every_command_of_the_api_takes_an_installation() -> None:
    names = {group.name for group in build_app().registered_groups} | {
        command.name or command.callback.__name__ for command in build_app().registered_commands if command.callback is not None
    }
    assert names >= REMOTE_COMMANDS
    local = {
        "up", "status", "down", "env", "settle", "topics", "demo", "clock", "catalog", "state", "stage", "dlq", "replay",
        "reprocess", "report", "export",
    }  # fmt: skip
    assert names - REMOTE_COMMANDS == local | {"plan-capacity", "context", "new", "deploy"}
