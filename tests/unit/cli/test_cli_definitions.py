"""Definitions in a file: exported, planned and applied, against the API with stores in memory."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from starling_api.definitions.kinds.reading import READ_ONLY
from starling_cli.commands.remote import definitions as commands
from starling_cli.definitions import SEGMENT, SERVER_FIELDS, Definition, needs_new, ordered, read_lines
from starling_local.errors import NotPossible, UserError
from tests.unit.api.calls import call
from tests.unit.api.memory import World
from tests.unit.cli import api_in_memory

LIST = {"key": "fair", "name": "Fair", "description": ""}
TRAIT = {"key": "spent", "event": "Buy", "measure": {"sum": "revenue"}}
VIP = {"key": "a-vip", "name": "VIP", "where": {"all": [{"segment": "buyers"}, {"list": "fair"}]}}
BUYERS = {"key": "buyers", "name": "Buyers", "where": {"trait": "computed.spent", "op": "gt", "value": 10}}
HOOK = {"key": "crm", "url": "https://crm.example/hook", "segments": ["buyers"]}
SMTP = {
    "key": "smtp", "channel": "email", "host": "smtp.example.com", "port": 465, "tls": "tls", "from": "shop@example.com",
    "username": "shop", "password": "s3cret-of-smtp", "callbacks": {"provider": "dsn", "secret": "s3cret-of-callbacks"},
}  # fmt: skip
SLACK = {"key": "sales", "channel": "slack", "url": "https://hooks.slack.example/s3cret", "segments": ["buyers"]}
CAMPAIGN = {
    "key": "welcome", "name": "Welcome", "trigger": {"enter": "buyers"}, "channel": "email", "target": "smtp",
    "variants": [{"key": "a", "weight": 100, "content": {"subject": "Hello", "text": "Hello {{ user_id }}"}}],
}  # fmt: skip
POLICY = {"timezone": "Asia/Tokyo", "quiet_hours": {"from": "21:00", "to": "08:00"}, "caps": [{"limit": 3, "per": "7d"}]}
SECRETS = {
    "target smtp": {"/password": SMTP["password"], "/callbacks/secret": "s3cret-of-callbacks"},
    "target sales": {"/url": SLACK["url"]},
}
PATHS = {"/v1/computed-traits": TRAIT, "/v1/segments": BUYERS, "/v1/webhooks": HOOK}
TARGETS = {"/v1/targets/smtp": SMTP, "/v1/targets/sales": SLACK, "/v1/campaigns/welcome": CAMPAIGN}


def filled() -> World:
    world = World()
    assert call(world, "PUT", "/v1/lists/fair", json=LIST).status_code == 201
    for path, document in (*PATHS.items(), ("/v1/segments", VIP)):
        assert call(world, "POST", path, json=document).status_code == 201
    return world


def with_targets() -> World:
    world = filled()
    for path, document in TARGETS.items():
        assert call(world, "POST", path.rpartition("/")[0], json=document).status_code == 201
    return world


def run(monkeypatch: pytest.MonkeyPatch, world: World, *words: str, text: str | None = None) -> Result:
    return api_in_memory.run(monkeypatch, commands, api_in_memory.client(world), "definitions", *words, text=text)


def exported(monkeypatch: pytest.MonkeyPatch, world: World) -> str:
    done = run(monkeypatch, world, "export")
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "definitions.jsonl"
    path.write_text(exported(monkeypatch, filled()))
    return path


def rows(done: Result) -> list[list[str]]:
    return [[cell.strip() for cell in row.split("  ") if cell.strip()] for row in done.stdout.splitlines()[1:]]


def test_an_export_is_ordered_by_what_refers_to_what(file: Path) -> None:
    found = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(line["kind"], line["document"]["key"]) for line in found] == [
        ("list", "fair"), ("computed-trait", "spent"), ("segment", "buyers"), ("segment", "a-vip"), ("webhook", "crm"),
    ]  # fmt: skip
    assert all(not line["document"].keys() & SERVER_FIELDS for line in found)


def test_an_import_into_another_installation_is_identical(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = World()
    done = run(monkeypatch, other, "apply", str(file))
    assert done.exit_code == 0, done.output
    assert [line.partition(":")[2].split(",")[0].strip() for line in done.stdout.splitlines()] == ["created"] * 5
    assert exported(monkeypatch, other) == file.read_text()
    again = run(monkeypatch, other, "apply", "-", text=file.read_text())
    assert [line.partition(":")[2].strip() for line in again.stdout.splitlines()] == ["unchanged"] * 5


def test_a_paused_segment_is_paused_in_the_other_installation(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    world, other = filled(), filled()
    assert call(world, "POST", "/v1/segments/buyers/pause").status_code == 200
    path = tmp_path / "paused.jsonl"
    path.write_text(exported(monkeypatch, world))
    assert ["segment buyers", "paused"] in rows(run(monkeypatch, other, "plan", str(path)))
    assert "segment buyers: paused\n" in run(monkeypatch, other, "apply", str(path)).stdout
    assert exported(monkeypatch, other) == path.read_text()
    resumed = path.with_name("resumed.jsonl")
    resumed.write_text(path.read_text().replace(', "paused": true', ""))
    assert "segment buyers: resumed\n" in run(monkeypatch, other, "apply", str(resumed)).stdout


def test_a_plan_names_each_change_and_changes_nothing(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = World()
    assert rows(run(monkeypatch, other, "plan", str(file))) == [
        ["list fair", "new"], ["computed-trait spent", "new"], ["segment buyers", "new, uses new definitions", "?"],
        ["segment a-vip", "new, uses new definitions", "?"], ["webhook crm", "new, uses new definitions"],
    ]  # fmt: skip
    assert other.published == []
    world = filled()
    file.write_text(file.read_text().replace('"value": 10', '"value": 20').replace('"name": "VIP"', '"name": "Stars"'))
    changes = {row[0]: row[1] for row in rows(run(monkeypatch, world, "plan", str(file)))}
    assert changes == {
        "list fair": "unchanged", "computed-trait spent": "unchanged", "segment buyers": "changed", "segment a-vip": "changed",
        "webhook crm": "unchanged",
    }  # fmt: skip


def test_a_refused_definition_does_not_stop_the_others(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text(file.read_text().replace('"revenue"}', '"revenue", "max": "x"}'))
    for command in ("plan", "apply"):
        done = run(monkeypatch, World(), command, str(file))
        assert isinstance(done.exception, UserError)
        assert "computed-trait spent: " in str(done.exception)
        assert "/measure" in str(done.exception)
        assert "list fair" in done.stdout


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "line 1 is not JSON"),
        ("\n[]", "line 2: .kind. must be one of list, event-type, .*, webhook, target, policy, campaign"),
        ('{"kind": "policies"}', "must be one of"),
        ('{"kind": "policy"}', "line 1: .document. must be an object$"),
        ('{"kind": "campaign", "document": {"key": "a"}, "paused": true}', "'paused' is unknown; the fields are kind, document$"),
        ('{"kind": "target", "document": {"key": "a"}, "disabled": "no"}', ".disabled. must be true or false"),
        ('{"kind": "list", "document": {"name": "x"}}', "line 1: .document. must be an object with a key"),
        ('{"kind": "list", "document": {"key": "a"}, "pause": true}', "'pause' is unknown"),
        ('{"kind": "segment", "document": {"key": "a"}, "paused": 1}', ".paused. must be true or false"),
        ('{"kind": "list", "document": {"key": "a"}}\n' * 2, "list a is in the file twice"),
    ],
)
def test_a_line_that_is_no_definition_is_named(text: str, message: str) -> None:
    with pytest.raises(NotPossible, match=message):
        read_lines(text)


def test_a_directory_has_a_file_a_definition_and_is_applied_as_the_file(
    file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    directory = tmp_path / "git"
    assert run(monkeypatch, filled(), "export", "--to", str(directory)).stdout == f"5 definitions are in {directory}\n"
    assert sorted(str(path.relative_to(directory)) for path in directory.rglob("*.json")) == [
        "computed-trait/spent.json", "list/fair.json", "segment/a-vip.json", "segment/buyers.json", "webhook/crm.json",
    ]  # fmt: skip
    (directory / "README.md").write_text("no definition")
    other = World()
    planned = [row[1] for row in rows(run(monkeypatch, other, "plan", str(directory)))]
    assert planned == ["new", "new", *["new, uses new definitions"] * 3]
    assert other.published == []
    assert run(monkeypatch, other, "apply", str(directory)).exit_code == 0
    assert exported(monkeypatch, other) == file.read_text()
    (directory / "more.jsonl").write_text(file.read_text())
    assert "list fair is in the directory twice" in str(run(monkeypatch, other, "plan", str(directory)).exception)
    (directory / "more.jsonl").unlink()
    (directory / "list/fair.json").write_text("{")
    refused = run(monkeypatch, other, "apply", str(directory)).exception
    assert f"{directory}/list/fair.json: the document is not JSON" in str(refused)


def test_segments_that_use_one_another_keep_an_order() -> None:
    """The API refuses a cycle; the file may contain one."""
    segment = SEGMENT
    found: list[Any] = [Definition(segment, {"key": key, "where": {"segment": used}}) for key, used in (("a", "b"), ("b", "a"))]
    assert {one.document["key"] for one in ordered(found)} == {"a", "b"}


def test_only_references_to_new_keys_are_expected() -> None:
    assert needs_new([("unknown_segment", "unknown segment 'a'")], {"a"})
    assert needs_new([("unknown_trait", "unknown computed trait 'computed.a'")], {"a"})
    assert not needs_new([("unknown_segment", "unknown segment 'b'")], {"a"})
    assert not needs_new([("wrong_type", "'a' is no number")], {"a"})
    assert not needs_new([], {"a"})


def test_the_fields_of_an_installation_are_those_that_the_api_writes() -> None:
    assert READ_ONLY | {"as_of", "secret"} == SERVER_FIELDS


def test_an_event_type_comes_before_the_statement_that_reads_its_table(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    event_type = {"key": "order", "event": "Order Completed", "properties": [{"name": "revenue", "type": "number"}]}
    sql = "SELECT user_id, sum(revenue) AS value FROM event_order GROUP BY user_id"
    trait = {"key": "spent", "sql": sql, "schedule": "0 * * * *"}
    path = tmp_path / "definitions.jsonl"
    view = {"key": "revenue", "sql": "SELECT sum(revenue) AS revenue FROM event_order", "schedule": "0 * * * *"}
    kinds = (("view", view), ("computed-trait", trait), ("event-type", event_type))
    lines = [{"kind": kind, "document": document} for kind, document in kinds]
    path.write_text("\n".join(map(json.dumps, lines)))
    world = World()
    assert rows(run(monkeypatch, world, "plan", str(path))) == [
        ["event-type order", "new"], ["computed-trait spent", "new, uses new definitions"],
        ["view revenue", "new, uses new definitions"],
    ]  # fmt: skip
    done = run(monkeypatch, world, "apply", str(path))
    assert [line.partition(":")[2].strip() for line in done.stdout.splitlines()] == ["created"] * 3
    found = [json.loads(line)["kind"] for line in exported(monkeypatch, world).splitlines()]
    assert found == ["event-type", "computed-trait", "view"]


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    path = tmp_path / "secrets.json"
    path.write_text(json.dumps(SECRETS))
    return path


def test_targets_and_campaigns_are_moved_and_their_secrets_given_to_the_import(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, secrets: Path
) -> None:
    world, other, file = with_targets(), World(), tmp_path / "definitions.jsonl"
    assert call(world, "POST", "/v1/targets/sales/disable").status_code == 200
    done = run(monkeypatch, world, "export")
    file.write_text(done.stdout)
    assert "s3cret" not in done.output
    assert done.stderr.splitlines() == [
        "starling: a secret is left out: target sales, /url",
        "starling: a secret is left out: target smtp, /password",
        "starling: a secret is left out: target smtp, /callbacks/secret",
    ]
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(line["kind"], line["document"]["key"], line.get("disabled", False)) for line in lines[-3:]] == [
        ("target", "sales", True), ("target", "smtp", False), ("campaign", "welcome", False),
    ]  # fmt: skip

    planned = {row[0]: row[1] for row in rows(run(monkeypatch, other, "plan", str(file), "--secrets", str(secrets)))}
    assert [planned[name] for name in ("target sales", "target smtp", "campaign welcome")] == [
        "new, uses new definitions", "new", "new, uses new definitions",
    ]  # fmt: skip
    assert other.published == []
    applied = run(monkeypatch, other, "apply", str(file), "--secrets", str(secrets))
    assert applied.exit_code == 0, applied.output
    assert "target sales: created, disabled\n" in applied.stdout
    assert "campaign welcome: created as a draft: `starling campaigns activate welcome` starts it\n" in applied.stdout
    assert exported(monkeypatch, other) == file.read_text()
    # Without secrets those that are stored stay, so a repetition changes nothing.
    again = run(monkeypatch, other, "apply", str(file))
    assert {line.partition(":")[2].strip() for line in again.stdout.splitlines()} == {"unchanged"}
    file.write_text(file.read_text().replace('"disabled": true, ', ""))
    assert "target sales: enabled\n" in run(monkeypatch, other, "apply", str(file)).stdout


def test_the_policy_is_moved_with_the_campaigns(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    world, other, directory = with_targets(), World(), tmp_path / "git"
    assert call(world, "PUT", "/v1/policy", json=POLICY).status_code == 200
    text = exported(monkeypatch, world)
    lines = [json.loads(line) for line in text.splitlines()]
    assert [line["kind"] for line in lines[-2:]] == ["policy", "campaign"]
    assert lines[-2]["document"] == POLICY
    run(monkeypatch, world, "export", "--to", str(directory))
    policy = directory / "policy" / "policy.json"
    assert json.loads(policy.read_text()) == lines[-2]

    assert rows(run(monkeypatch, other, "plan", str(policy.parent))) == [["policy", "new"]]
    assert other.published == []
    assert run(monkeypatch, other, "apply", str(policy.parent)).stdout == "policy: created\n"
    assert run(monkeypatch, other, "apply", str(policy.parent)).stdout == "policy: unchanged\n"
    policy.write_text(policy.read_text().replace("21:00", "22:00"))
    assert rows(run(monkeypatch, other, "plan", str(policy.parent))) == [["policy", "changed"]]
    assert run(monkeypatch, other, "apply", str(policy.parent)).stdout == "policy: changed, version 2\n"
    assert json.loads(exported(monkeypatch, other))["document"]["quiet_hours"]["from"] == "22:00"


def test_a_new_target_whose_secret_is_missing_is_refused_with_its_campaign(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    other, file = World(), tmp_path / "definitions.jsonl"
    file.write_text(exported(monkeypatch, with_targets()))
    done = run(monkeypatch, other, "apply", str(file))
    assert isinstance(done.exception, UserError)
    assert str(done.exception).startswith("3 of 8 definitions were refused")
    assert "/password: wrong_type: *** stands for a stored value, and there is none" in str(done.exception)
    assert "webhook crm: created" in done.stdout


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "the secrets are not JSON"),
        ("[]", "the secrets must be an object"),
        ('{"target smtp": {"/password": 1}}', "the secrets must be an object"),
        ('{"target other": {"/password": "x"}}', "the secrets name 'target other', which is not among the definitions"),
    ],
)
def test_secrets_that_fit_nothing_are_refused(text: str, message: str, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = file.with_name("secrets.json")
    path.write_text(text)
    done = run(monkeypatch, World(), "apply", str(file), "--secrets", str(path))
    assert isinstance(done.exception, NotPossible)
    assert message in str(done.exception)
