"""`starling import run`, `database`, `status`, `rejects`, `list` and `cancel`: what they request, copy, print and refuse."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from starling_cli.api_client import ApiRefused
from starling_cli.app import build_app, options_first
from starling_cli.commands.remote import imports
from starling_cli.imports import default_key
from starling_local.errors import NotPossible, UserError
from starling_local.stack.parts.services import imports_dir
from starling_rules.imports import _KEY


class Api:
    """Imports by key. Each look at one takes the next of `states`, the last one again."""

    def __init__(self) -> None:
        self.made: dict[str, dict[str, Any]] = {}
        self.states = [{"state": "done", "rows_done": 3, "accepted": 3, "rejected": 0}]
        self.refuses = False
        self.repeated: list[tuple[str, str | None]] = []
        self.permitted: list[bool] = []
        self.scheduled: list[dict[str, Any]] = []

    def create(self, _path: str, document: Mapping[str, Any]) -> None:
        if self.refuses:
            raise ApiRefused("/event: an import of events has either event or event_column: give one of them")
        self.made[str(document["key"])] = dict(document)

    def definition(self, _path: str, key: str) -> dict[str, Any] | None:
        if key not in self.made:
            return None
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        file = {"file": "a.csv", "rows_done": 3, "accepted": 2, "rejected": 1, "complete": True, "message": None}
        return {**self.made[key], "message": None, "created_at": "2026-01-01T00:00:00.000Z", "files": [file], **state}

    def definitions(self, path: str) -> Iterator[Mapping[str, Any]]:
        yield from filter(None, (self.definition(path, key) for key in self.made))

    def import_rejects(self, key: str) -> Iterator[Mapping[str, Any]]:
        yield {"file": "a.csv", "row": 2, "column": None, "code": "missing_id", "reason": f"of {key}", "cure": "give each row one"}

    def repeat_import(self, key: str, password: str | None, *, any_deletions: bool) -> None:
        self.repeated.append((key, password))
        self.permitted.append(any_deletions)

    def schedule_import(self, key: str, schedule: Mapping[str, Any]) -> None:
        self.scheduled.append(dict(schedule))
        self.made[key] |= schedule

    def cancel_import(self, key: str) -> None:
        assert key in self.made
        self.states = [{"state": "cancelled", "rows_done": 0, "accepted": 0, "rejected": 0}]


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Api:
    made = Api()
    monkeypatch.setattr(imports, "api_at", lambda _: made)
    monkeypatch.setattr(imports, "_POLL_SECONDS", 0.0)
    monkeypatch.setenv("STARLING_DATA_DIR", str(tmp_path / "instance"))
    return made


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    (tmp_path / "Orders 2025.csv").write_text("user_id,total\nann,1\n")
    return tmp_path / "Orders 2025.csv"


def starling(*words: str | Path) -> Result:
    return CliRunner().invoke(build_app(), options_first(["import", *map(str, words)]))


def copies(tmp_path: Path) -> list[Path]:
    return sorted(path for path in imports_dir(tmp_path / "instance").rglob("*") if path.is_file())


def test_a_local_file_is_linked_below_the_permitted_place_until_the_import_has_ended(
    api: Api, orders: Path, tmp_path: Path
) -> None:
    found = starling("run", orders, "--event", "Order", "--mapping", "total=properties.revenue")
    assert found.exit_code == 0, found.output
    (key,) = api.made
    assert (found.stdout.split(), key.startswith("orders-2025-")) == ([key], True)
    there = imports_dir(tmp_path / "instance") / key / orders.name
    assert there.samefile(orders)
    assert api.made[key] == {
        "key": key, "uri": there.as_uri(), "kind": "events", "format": "csv", "user_column": "user_id", "event": "Order",
        "columns": {"total": "properties.revenue"},
    }  # fmt: skip
    api.states.insert(0, {"state": "running", "rows_done": 0, "accepted": 0, "rejected": 0})
    assert "is running" in starling("status", key).stdout
    assert copies(tmp_path) == [there]
    assert "is done, rows read 3, sent 3, rejected 0" in starling("status", key).stdout
    assert copies(tmp_path) == []
    assert orders.exists()


def test_the_same_file_and_options_have_the_same_key(api: Api, orders: Path) -> None:
    assert starling("run", orders, "--event", "Order").exit_code == 0
    again = starling("run", orders, "--event", "Order")
    assert isinstance(again.exception, UserError)
    assert "there is an import 'orders-2025-" in str(again.exception)
    assert starling("run", orders, "--event", "Order", "--key", "other").exit_code == 0
    orders.write_text("user_id,total\nann,22\n")
    assert starling("run", orders, "--event", "Order").exit_code == 0
    assert len(api.made) == 3


def test_a_directory_and_a_uri(api: Api, tmp_path: Path) -> None:
    (tmp_path / "days").mkdir()
    (tmp_path / "days" / "1.jsonl").write_text("{}\n")
    assert starling("run", tmp_path / "days", "--kind", "traits", "--format", "jsonl", "--key", "days").exit_code == 0
    assert [path.name for path in copies(tmp_path)] == ["1.jsonl"]
    assert starling("run", "s3a://shop/x.parquet", "--event", "Order", "--key", "x", "--id-column", "id").exit_code == 0
    words = ["--kind", "accounts", "--user-column", "mail", "--account-column", "company", "--mapping", "size=traits.employees"]
    assert starling("run", "s3a://shop/y.csv", *words, "--key", "y").exit_code == 0
    assert api.made["y"] == {
        "key": "y", "uri": "s3a://shop/y.csv", "kind": "accounts", "format": "csv", "user_column": "mail",
        "account_column": "company", "columns": {"size": "traits.employees"},
    }  # fmt: skip
    assert starling("run", "s3a://shop/z.csv", "--kind", "lists", "--list", "fair", "--key", "z").exit_code == 0
    assert {name: api.made["z"][name] for name in ("kind", "list_key")} == {"kind": "lists", "list_key": "fair"}
    for key, options, column in (("p", [], "product_id"), ("q", ["--product-column", "sku"], "sku")):
        assert starling("run", "s3a://shop/p.csv", "--kind", "catalog", *options, "--key", key).exit_code == 0
        assert api.made[key] == {
            "key": key, "uri": "s3a://shop/p.csv", "kind": "catalog", "format": "csv", "product_column": column,
        }  # fmt: skip
    assert (api.made["x"]["uri"], api.made["x"]["format"], api.made["x"]["id_column"]) == ("s3a://shop/x.parquet", "parquet", "id")


@pytest.mark.parametrize(
    ("end", "code", "words"),
    [
        ({"state": "done", "rows_done": 3, "accepted": 3, "rejected": 0}, 0, "is done"),
        ({"state": "done", "rows_done": 3, "accepted": 2, "rejected": 1}, 1, "starling import rejects orders"),
        ({"state": "failed", "rows_done": 0, "accepted": 0, "rejected": 0, "message": "no column 'x'"}, 1, "no column 'x'"),
        ({"state": "cancelled", "rows_done": 0, "accepted": 0, "rejected": 0}, 1, "is cancelled"),
    ],
)
def test_waiting_ends_with_the_result(api: Api, orders: Path, end: dict[str, Any], code: int, words: str) -> None:
    api.states = [{"state": "waiting", "rows_done": 0, "accepted": 0, "rejected": 0}, end]
    found = starling("run", orders, "--event", "Order", "--key", "orders", "--wait")
    assert found.exit_code == code
    assert words in found.stdout


def test_a_timeout_states_how_far_the_import_is(api: Api, orders: Path) -> None:
    api.states = [{"state": "running", "rows_done": 7, "accepted": 7, "rejected": 0}]
    found = starling("run", orders, "--event", "Order", "--wait", "--timeout", "0s")
    assert isinstance(found.exception, UserError)
    assert "rows read 7" in str(found.exception)


def test_a_refused_import_leaves_no_copy(api: Api, orders: Path, tmp_path: Path) -> None:
    api.refuses = True
    assert isinstance(starling("run", orders).exception, ApiRefused)
    assert copies(tmp_path) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["none.csv"], "there is no such file"),
        (["s3a://shop/orders"], "give --format"),
        (["s3a://shop/a.csv", "--mapping", "total"], "COLUMN=FIELD"),
        (["s3a://shop/a.csv", "--mapping", "a=properties.a", "--mapping", "a=properties.b"], "has a field already"),
        (["s3a://shop/a.csv", "--timeout", "5s"], "is for --wait"),
        (["orders.csv", "--url", "http://127.0.0.1:1", "--token", "t"], "give one"),
    ],
)
def test_an_invalid_call_is_refused(api: Api, words: list[str], message: str) -> None:
    found = starling("run", *words)
    assert isinstance(found.exception, NotPossible)
    assert message in str(found.exception)
    assert not api.made


def test_rejected_rows_a_list_and_a_cancellation(api: Api) -> None:
    assert starling("run", "s3a://shop/a.csv", "--event", "Order", "--key", "a").exit_code == 0
    assert "missing_id  of a    give each row one" in starling("rejects", "a").stdout
    assert json.loads(starling("rejects", "a", "--json").stdout)["row"] == 2
    assert "s3a://shop/a.csv" in starling("list").stdout
    assert json.loads(starling("status", "a", "--json").stdout)["rejected"] == 0
    assert "is cancelled" in starling("cancel", "a").stdout
    assert "there is no import 'b'" in str(starling("status", "b").exception)


def test_a_history_file_is_imported_into_a_local_instance_only(orders: Path) -> None:
    found = starling(orders, "--format", "csv", "--url", "http://127.0.0.1:1", "--token", "t")
    assert isinstance(found.exception, NotPossible)
    assert "starling import run URI" in str(found.exception)


@pytest.mark.parametrize("name", ["orders.csv", "2025.csv", "Äß.csv", "x" * 200 + ".csv", "s3://shop/--"])
def test_a_key_is_one_of_the_api(name: str) -> None:
    assert _KEY.fullmatch(default_key(name, {}, ""))


def test_a_database_is_imported_and_the_same_command_imports_it_again(api: Api, tmp_path: Path) -> None:
    source = {"user": "reader", "table": "customers"}
    document = {"key": "crm", "uri": "jdbc:postgresql://db/crm", "format": "jdbc", "kind": "traits", "jdbc": source}
    (tmp_path / "crm.json").write_text(json.dumps(document))
    (tmp_path / "password").write_text("planted\n")
    words = ("database", tmp_path / "crm.json", "--password-file", tmp_path / "password")
    api.states = [{"state": "done", "rows_done": 3, "accepted": 1, "rejected": 0}]
    found = starling(*words, "--wait")
    assert (found.exit_code, api.made["crm"]["jdbc"]) == (0, {**source, "password": "planted"})
    assert "rows read 3, sent 1, rejected 0, unchanged 2" in found.stdout
    api.made["crm"]["jdbc"]["password"] = "***"
    assert starling(*words).exit_code == 0
    assert starling("database", tmp_path / "crm.json").exit_code == 0
    assert api.repeated == [("crm", "planted"), ("crm", None)]
    assert starling(*words, "--any-deletions").exit_code == 0
    assert api.permitted == [False, False, True]
    (tmp_path / "crm.json").write_text(json.dumps({**document, "jdbc": {**source, "table": "orders"}}))
    changed = starling(*words)
    assert (type(changed.exception), len(api.repeated)) == (UserError, 3)
    assert "another jdbc/table" in str(changed.exception)


def test_an_iceberg_table_is_imported_without_a_password(api: Api, tmp_path: Path) -> None:
    document = {"key": "crm", "uri": "iceberg:crm.customers", "format": "iceberg", "kind": "traits"}
    (tmp_path / "crm.json").write_text(json.dumps(document))
    (tmp_path / "password").write_text("planted")
    assert isinstance(starling("database", tmp_path / "crm.json", "--password-file", tmp_path / "password").exception, NotPossible)
    api.states = [{"state": "done", "rows_done": 3, "accepted": 1, "rejected": 0}]
    assert "unchanged 2" in starling("database", tmp_path / "crm.json", "--wait").stdout
    assert starling("database", tmp_path / "crm.json").exit_code == 0
    assert (api.made["crm"], api.repeated) == (document, [("crm", None)])


def test_the_schedule_of_the_file_replaces_the_stored_one(api: Api, tmp_path: Path) -> None:
    document = {"key": "crm", "uri": "jdbc:postgresql://db/crm", "format": "jdbc", "kind": "traits", "jdbc": {"user": "reader"}}
    berlin = {"schedule": "0 3 * * *", "timezone": "Europe/Berlin"}
    path = tmp_path / "crm.json"
    for given, scheduled in (
        (berlin, []),  # a new import has it
        (berlin, []),
        ({"schedule": "0 3 * * *"}, []),
        ({"schedule": "0 4 * * *"}, [{**berlin, "schedule": "0 4 * * *"}]),
        ({"schedule": "0 4 * * *", "timezone": "UTC"}, [{"schedule": "0 4 * * *", "timezone": "UTC"}]),
        ({}, [{"schedule": None, "timezone": None}]),
        ({}, []),
        ({"schedule": "0 5 * * *"}, [{"schedule": "0 5 * * *", "timezone": None}]),
    ):
        path.write_text(json.dumps({**document, **given}))
        assert starling("database", path).exit_code == 0
        assert api.scheduled == scheduled
        api.scheduled.clear()
    assert len(api.repeated) == 7
    api.states = [{"state": "done", "rows_done": 3, "accepted": 1, "rejected": 0, "next_run_at": "2026-01-02T04:00:00.000Z"}]
    assert "next run 2026-01-02T04:00:00.000Z" in starling("status", "crm").stdout
    assert "2026-01-02T04:00:00.000Z" in starling("list").stdout


@pytest.mark.parametrize("text", ["{", "[]", '{"key": "a", "format": "csv"}', '{"format": "jdbc", "jdbc": {}}'])
def test_what_is_no_import_of_a_database_is_refused(api: Api, tmp_path: Path, text: str) -> None:
    (tmp_path / "crm.json").write_text(text)
    assert isinstance(starling("database", tmp_path / "crm.json").exception, NotPossible)
    assert isinstance(starling("database", tmp_path / "absent.json").exception, NotPossible)
    assert not api.made
