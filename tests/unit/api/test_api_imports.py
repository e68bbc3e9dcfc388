"""Requests to imports, over HTTP, on rows in memory."""

import json
from typing import Any

import pytest

from starling_api.definitions.vault import Vault
from starling_api.imports.imports import ImportFileRow, Imports, RejectRow
from starling_common.sealing import Place as SecretPlace
from starling_common.sealing import Sealer
from tests.unit.api.calls import call
from tests.unit.api.memory import World

BODY = {"key": "orders", "uri": "s3://shop/orders", "format": "csv", "kind": "events", "user_column": "customer", "event": "Order"}


def created(*keys: str) -> World:
    world = World()
    for key in keys or ("orders",):
        assert call(world, "POST", "/v1/imports", json={**BODY, "key": key}).status_code == 201
    return world


def test_a_new_import_waits_and_can_be_read() -> None:
    world = created()
    world.import_store.kept["orders"] = [
        ImportFileRow("a.csv", 10, 9, 1, complete=True, message=None),
        ImportFileRow("b.csv", 5, 5, 0, complete=False, message=None),
    ]
    found = call(world, "GET", "/v1/imports/orders", role="see").json()
    assert {name: found[name] for name in BODY} == BODY
    assert (found["state"], found["message"], found["changed_at"]) == ("waiting", None, None)
    assert (found["rows_done"], found["accepted"], found["rejected"]) == (15, 14, 1)
    assert [file["file"] for file in found["files"]] == ["a.csv", "b.csv"]


def test_an_import_without_a_runner_names_who_starts_it() -> None:
    imports = Imports(created().import_store, lambda: 0, is_started=False)
    assert imports.one("acme", "orders")["message"] == (
        "an operator starts the job: run it, or set STARLING_IMPORTS_RUNNER of the API"
    )


def test_a_key_is_used_once_and_a_dry_run_creates_nothing() -> None:
    world = World()
    assert call(world, "POST", "/v1/imports?dry_run=true", json=BODY).status_code == 201
    assert call(world, "GET", "/v1/imports/orders").status_code == 404
    for path, status in (("/v1/imports", 201), ("/v1/imports", 409), ("/v1/imports?dry_run=true", 409)):
        assert call(world, "POST", path, json=BODY).status_code == status


@pytest.mark.parametrize("role", ["see", "make", "approve"])
def test_only_an_admin_imports_and_cancels(role: str) -> None:
    world = created()
    assert call(world, "POST", "/v1/imports", json=BODY, role=role).status_code == 403
    assert call(world, "DELETE", "/v1/imports/orders", role=role).status_code == 403


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"uri": "s3://"}, "bad_uri"),
        ({"uri": "/data"}, "bad_uri"),
        ({"format": "xlsx"}, "bad_import"),
        ({"event": None}, "missing_event"),
    ],
)
def test_an_invalid_import_is_refused(change: dict[str, Any], code: str) -> None:
    answer = call(World(), "POST", "/v1/imports", json=BODY | change)
    assert (answer.status_code, answer.json()["code"]) == (400, code)


def test_pages_of_imports_and_of_rejected_rows() -> None:
    world = created("c", "a", "b")
    world.import_store.rejected["a"] = [
        RejectRow("x.csv", row, "at" if row > 1 else "", "bad_value", "r", "c") for row in (1, 2, 10)
    ]
    for path, name, expected in (
        ("/v1/imports", "key", ["a", "b", "c"]),
        ("/v1/imports/a/rejects", "row", [1, 2, 10]),
        ("/v1/imports/a/rejects", "column", [None, "at", "at"]),
        ("/v1/imports/b/rejects", "row", []),
    ):
        first = call(world, "GET", f"{path}?limit=2", role="see").json()
        found = [item[name] for item in first["items"]]
        if first["next_cursor"] is not None:
            second = call(world, "GET", f"{path}?limit=2&cursor={first['next_cursor']}", role="see").json()
            assert second["next_cursor"] is None
            found += [item[name] for item in second["items"]]
        assert found == expected
    assert call(world, "GET", "/v1/imports?cursor=x").json()["code"] == "bad_cursor"


def test_a_running_import_can_be_cancelled_once() -> None:
    world = created()
    assert call(world, "DELETE", "/v1/imports/orders?dry_run=true").json()["state"] == "cancelled"
    assert call(world, "GET", "/v1/imports/orders").json()["state"] == "waiting"
    assert call(world, "DELETE", "/v1/imports/orders").json()["state"] == "cancelled"
    answer = call(world, "DELETE", "/v1/imports/orders")
    assert (answer.status_code, answer.json()["code"]) == (409, "import_ended")


@pytest.mark.parametrize(("method", "path"), [("GET", ""), ("GET", "/rejects"), ("DELETE", "")])
def test_an_unknown_import_is_not_found(method: str, path: str) -> None:
    answer = call(World(), method, f"/v1/imports/none{path}")
    assert (answer.status_code, answer.json()["code"]) == (404, "unknown_import")


SOURCE = {"user": "reader", "password": "planted-77a0", "table": "customers"}
DATABASE = {
    "key": "crm", "uri": "jdbc:postgresql://db.example.com/crm", "format": "jdbc", "kind": "traits", "user_column": "id",
    "id_column": "id", "jdbc": SOURCE,
}  # fmt: skip


def with_database() -> World:
    world = World()
    answer = call(world, "POST", "/v1/imports", json=DATABASE)
    assert answer.status_code == 201, answer.text
    assert "planted" not in answer.text
    return world


@pytest.mark.parametrize("runs", [False, True])
def test_a_rotation_encrypts_passwords_with_the_newest_key_also_while_the_import_runs(runs: bool) -> None:
    world = with_database()
    assert call(world, "POST", "/v1/imports", json=BODY).status_code == 201  # it has no password
    if runs:
        row = world.import_store.rows["acme", "crm"]
        world.import_store.rows["acme", "crm"] = row._replace(state="running")
    first = world.vault.sealer
    world.vault = Vault(Sealer({"second": bytes(32)}))
    lost = call(world, "POST", "/v1/secrets/rotate").json()
    assert ([one["key"] for one in lost["unreadable"]], lost["rewritten"]) == (["crm"], [])
    assert "jdbc/password of import/crm" in lost["unreadable"][0]["reason"]

    both = Sealer({"second": bytes(32)})
    both._ciphers.update(first._ciphers)
    world.vault = Vault(both)
    before = world.import_store.rows["acme", "crm"]
    for query in ("?dry_run=true", ""):
        assert world.import_store.rows["acme", "crm"] == before
        found = call(world, "POST", f"/v1/secrets/rotate{query}").json()
        assert found["rewritten"] == [{"kind": "import", "key": "crm"}]
    assert call(world, "POST", "/v1/secrets/rotate").json()["rewritten"] == []
    after = world.import_store.rows["acme", "crm"]
    assert after == before._replace(request=after.request)
    only = Sealer({"second": bytes(32)})
    password = json.loads(after.request)["jdbc"]["password"]
    assert only.open(password, SecretPlace("acme", "import/crm", "jdbc/password")) == "planted-77a0"


def test_the_password_of_a_database_is_stored_encrypted_and_never_shown() -> None:
    world = with_database()
    stored = world.import_store.rows["acme", "crm"].request
    assert "planted" not in stored
    password = json.loads(stored)["jdbc"]["password"]
    assert world.vault.sealer.open(password, SecretPlace("acme", "import/crm", "jdbc/password")) == "planted-77a0"
    for path in ("/v1/imports", "/v1/imports/crm"):
        answer = call(world, "GET", path, role="see")
        assert "***" in answer.text
        assert "sealed" not in answer.text


def test_what_is_shown_for_a_password_is_no_password() -> None:
    for password in ("***", "sealed:v1:first:x"):
        answer = call(World(), "POST", "/v1/imports", json={**DATABASE, "jdbc": {**SOURCE, "password": password}})
        assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (400, "/jdbc/password")
    world = World(vault=Vault(Sealer()))
    answer = call(world, "POST", "/v1/imports", json=DATABASE)
    assert (answer.status_code, answer.json()["code"]) == (503, "secrets_key_missing")


def test_every_error_of_an_import_is_listed() -> None:
    answer = call(World(), "POST", "/v1/imports", json=DATABASE | {"id_column": None, "max_rejects": -1, "jdbc": {"user": ""}})
    pointers = [one["pointer"] for one in answer.json()["errors"]]
    assert (answer.status_code, pointers) == (400, ["/id_column", "/max_rejects", "/jdbc/user", "/jdbc/table"])


def test_an_import_of_a_database_is_run_again_once_it_has_ended() -> None:
    world = with_database()
    assert call(world, "POST", "/v1/imports/crm/run", json={}).json()["code"] == "import_running"
    row = world.import_store.rows["acme", "crm"]
    world.import_store.rows["acme", "crm"] = row._replace(state="failed", message="wrong password")
    assert call(world, "POST", "/v1/imports/crm/run?dry_run=true", json={}).json()["state"] == "waiting"
    assert call(world, "GET", "/v1/imports/crm").json()["state"] == "failed"
    assert call(world, "POST", "/v1/imports/crm/run", json={"passwort": "x"}).status_code == 400
    assert call(world, "POST", "/v1/imports/crm/run", json={}, role="approve").status_code == 403
    answer = call(world, "POST", "/v1/imports/crm/run", json={"password": "planted-88b1"})
    assert (answer.status_code, answer.json()["state"], answer.json()["message"]) == (200, "waiting", None)
    stored = world.import_store.rows["acme", "crm"].request
    assert "planted" not in f"{stored}{answer.text}"
    assert stored != row.request


def test_files_are_imported_once() -> None:
    world = created()
    call(world, "DELETE", "/v1/imports/orders")
    answer = call(world, "POST", "/v1/imports/orders/run", json={})
    assert (answer.status_code, answer.json()["code"]) == (400, "files_run_once")
