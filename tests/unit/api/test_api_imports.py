"""Requests to imports, over HTTP, on rows in memory."""

import json
from typing import Any

import pytest

from starling_api.definitions.vault import Vault
from starling_api.imports.imports import ImportFileRow, Imports, RejectRow
from starling_common.security.sealing import Place as SecretPlace
from starling_common.security.sealing import Sealer
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
        ({"event": None, "kind": "accounts"}, "missing_column"),
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


def test_an_import_of_accounts_is_shown_with_its_column_and_deletes_nothing() -> None:
    world, accounts = World(), {"kind": "accounts", "account_column": "company"}
    refused = call(world, "POST", "/v1/imports", json=DATABASE | accounts | {"jdbc": SOURCE | {"deletions": "any"}}).json()
    assert [(one["pointer"], one["code"]) for one in refused["errors"]] == [("/jdbc/deletions", "unexpected_deletions")]
    assert call(world, "POST", "/v1/imports", json=DATABASE | accounts).status_code == 201
    found = call(world, "GET", "/v1/imports/crm", role="see").json()
    assert (found["kind"], found["account_column"]) == ("accounts", "company")
    ended(world)
    assert call(world, "POST", "/v1/imports/crm/run", json={"deletions": "any"}).json()["code"] == "unexpected_deletions"


def test_an_import_of_the_catalog_has_a_product_and_no_user() -> None:
    world, body = World(), {"key": "shop", "uri": "s3://shop/products.csv", "format": "csv", "kind": "catalog"}
    refused = call(world, "POST", "/v1/imports", json={**body, "user_column": "customer"})
    assert refused.status_code == 400
    assert [one["pointer"] for one in refused.json()["errors"]] == ["/user_column", "/product_column"]
    assert call(world, "POST", "/v1/imports", json={**body, "product_column": "sku"}).status_code == 201
    found = call(world, "GET", "/v1/imports/shop", role="see").json()
    assert found["product_column"] == "sku"
    assert "user_column" not in found


def test_an_import_of_a_list_needs_one_that_is_not_deleted() -> None:
    world, fair = World(), {**BODY, "kind": "lists", "event": None, "list_key": "fair"}

    def refused() -> list[tuple[str, str]]:
        answer = call(world, "POST", "/v1/imports", json=fair)
        assert answer.status_code == 400
        return [(one["pointer"], one["code"]) for one in answer.json()["errors"]]

    assert refused() == [("/list_key", "unknown_list")]
    assert call(world, "PUT", "/v1/lists/fair").status_code == 201
    assert call(world, "POST", "/v1/imports?dry_run=true", json=fair).status_code == 201
    assert call(world, "DELETE", "/v1/lists/fair").status_code == 204
    assert refused() == [("/list_key", "unknown_list")]
    assert call(world, "PUT", "/v1/lists/fair-2").status_code == 201
    assert call(world, "POST", "/v1/imports", json={**fair, "list_key": "fair-2"}).status_code == 201
    assert call(world, "GET", "/v1/imports/orders", role="see").json()["list_key"] == "fair-2"


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


def test_an_import_of_an_iceberg_table_is_run_again_and_has_no_password() -> None:
    world = World()
    document = {name: value for name, value in DATABASE.items() if name != "jdbc"}
    document |= {"uri": "iceberg:crm.customers", "format": "iceberg", "schedule": "30 * * * *"}
    assert call(world, "POST", "/v1/imports", json=document).status_code == 201
    ended(world)
    refused = call(world, "POST", "/v1/imports/crm/run", json={"password": "planted"})
    assert [one["pointer"] for one in refused.json()["errors"]] == ["/password"]
    assert call(world, "POST", "/v1/imports/crm/run", json={"deletions": "any"}).json()["state"] == "waiting"


def test_one_run_may_delete_the_traits_of_any_number_of_rows() -> None:
    world = with_database()
    ended(world)
    refused = call(world, "POST", "/v1/imports/crm/run", json={"deletions": "none", "password": 5, "x": 1})
    assert [one["pointer"] for one in refused.json()["errors"]] == ["", "/password", "/deletions"]
    assert call(world, "POST", "/v1/imports/crm/run", json={"deletions": "any"}).status_code == 200
    assert world.import_store.deletions == {"crm": "any"}
    ended(world)
    assert call(world, "POST", "/v1/imports/crm/run", json={}).status_code == 200
    assert world.import_store.deletions == {"crm": None}
    assert "deletions" not in world.import_store.rows["acme", "crm"].request


@pytest.mark.parametrize("source", [{"deletions": "none"}, {"mode": "cursor", "cursor_column": "at"}])
def test_an_import_that_finds_no_deletions_permits_none(source: dict[str, str]) -> None:
    world = World()
    assert call(world, "POST", "/v1/imports", json=DATABASE | {"jdbc": SOURCE | source}).status_code == 201
    ended(world)
    answer = call(world, "POST", "/v1/imports/crm/run", json={"deletions": "any"})
    assert (answer.status_code, answer.json()["code"]) == (400, "unexpected_deletions")


def test_files_are_imported_once() -> None:
    world = created()
    call(world, "DELETE", "/v1/imports/orders")
    for method, path, body in (("POST", "run", {}), ("PUT", "schedule", {"schedule": "0 * * * *"})):
        answer = call(world, method, f"/v1/imports/orders/{path}", json=body)
        assert (answer.status_code, answer.json()["code"]) == (400, "files_run_once")


HOUR_MICROS = 3_600_000_000
HOURLY = {**DATABASE, "schedule": "30 * * * *"}


def scheduled(**more: Any) -> World:
    """An import that runs half past each hour; it is a quarter past. It has ended once."""
    world = World(micros=1000 * HOUR_MICROS + HOUR_MICROS // 4, timezones="acme=Asia/Kolkata")
    answer = call(world, "POST", "/v1/imports", json=HOURLY | more)
    assert answer.status_code == 201, answer.text
    ended(world)
    return world


def ended(world: World, state: str = "done") -> None:
    row = world.import_store.rows["acme", "crm"]
    assert row.state == "waiting"
    world.import_store.rows["acme", "crm"] = row._replace(state=state)


def state_of(world: World) -> str:
    return world.import_store.rows["acme", "crm"].state


def test_an_import_runs_again_by_its_schedule() -> None:
    world = scheduled(timezone="UTC")
    shown = call(world, "GET", "/v1/imports/crm", role="see").json()
    assert (shown["schedule"], shown["timezone"], shown["next_run_at"]) == ("30 * * * *", "UTC", "1970-02-11T16:30:00.000Z")
    assert "schedule" not in world.import_store.rows["acme", "crm"].request
    assert world.imports.queue_due() == {"waiting": 0, "running": 0}
    world.micros += HOUR_MICROS // 4 - 1000
    assert world.imports.queue_due() == {"waiting": 0, "running": 0}
    world.micros += 1000
    assert world.imports.queue_due() == {"waiting": 1, "running": 0}
    assert state_of(world) == "waiting"
    ended(world, "failed")  # a failed run is repeated at the next time
    assert world.imports.queue_due() == {"waiting": 0, "running": 0}
    world.micros += HOUR_MICROS
    assert world.imports.queue_due() == {"waiting": 1, "running": 0}


def test_missed_times_lead_to_one_run_and_never_to_two_together() -> None:
    world = scheduled()
    world.micros += 50 * HOUR_MICROS
    for _ in range(3):  # also after restarts of the process
        assert world.imports.queue_due() == {"waiting": 1, "running": 0}
    ended(world, "running")
    world.micros += 50 * HOUR_MICROS
    assert world.imports.queue_due() == {"waiting": 0, "running": 1}
    world.import_store.rows["acme", "crm"] = world.import_store.rows["acme", "crm"]._replace(state="done")
    assert world.imports.queue_due() == {"waiting": 1, "running": 0}
    ended(world)
    assert world.imports.queue_due() == {"waiting": 0, "running": 0}


def test_of_two_processes_one_queues_an_import() -> None:
    world = scheduled()
    world.micros += HOUR_MICROS
    store = world.import_store
    before = store.every()
    world.imports.queue_due()
    ended(world)
    # The other process has read the states before.
    store.every = lambda: before  # type: ignore[method-assign]
    assert world.imports.queue_due() == {"waiting": 0, "running": 0}
    assert state_of(world) == "done"


def test_a_run_by_hand_does_not_repeat_a_time_that_is_past() -> None:
    world = scheduled()
    world.micros += HOUR_MICROS
    assert call(world, "POST", "/v1/imports/crm/run", json={}).status_code == 200
    ended(world)
    assert world.imports.queue_due() == {"waiting": 0, "running": 0}


def test_a_schedule_has_the_time_zone_of_the_workspace_and_can_be_replaced() -> None:
    world = scheduled()
    shown = call(world, "GET", "/v1/imports/crm").json()
    assert (shown["timezone"], shown["next_run_at"]) == ("Asia/Kolkata", "1970-02-11T17:00:00.000Z")  # UTC+05:30
    world.micros += 2 * HOUR_MICROS
    path, body = "/v1/imports/crm/schedule", {"schedule": "0 3 * * *", "timezone": "UTC"}
    assert call(world, "PUT", path, json=body, role="approve").status_code == 403
    assert call(world, "PUT", f"{path}?dry_run=true", json=body).json()["schedule"] == "0 3 * * *"
    assert call(world, "GET", "/v1/imports/crm").json()["schedule"] == "30 * * * *"
    answer = call(world, "PUT", path, json=body)
    assert (answer.status_code, answer.json()["next_run_at"]) == (200, "1970-02-12T03:00:00.000Z")
    assert world.imports.queue_due() == {"waiting": 0, "running": 0}  # times before the schedule are past
    removed = call(world, "PUT", path, json={"schedule": None}).json()
    assert (removed["schedule"], removed["timezone"], removed["next_run_at"]) == (None, None, None)
    world.micros += 50 * HOUR_MICROS
    assert world.imports.queue_due() == {"waiting": 0, "running": 0}
    assert call(world, "PUT", "/v1/imports/none/schedule", json=body).status_code == 404


def test_a_cancelled_import_rests_until_it_is_run_again() -> None:
    world = scheduled()
    answer = call(world, "DELETE", "/v1/imports/crm")
    assert (answer.status_code, answer.json()["state"], answer.json()["next_run_at"]) == (200, "cancelled", None)
    assert call(world, "DELETE", "/v1/imports/crm").status_code == 409
    world.micros += 2 * HOUR_MICROS
    assert world.imports.queue_due() == {"waiting": 0, "running": 0}
    assert call(world, "POST", "/v1/imports/crm/run", json={}).json()["next_run_at"] is not None
    ended(world)
    world.micros += HOUR_MICROS
    assert world.imports.queue_due() == {"waiting": 1, "running": 0}


@pytest.mark.parametrize(
    ("change", "errors"),
    [
        ({"schedule": "0 0 30 2 *"}, [("/schedule", "bad_schedule", "bad day-of-month")]),
        ({"schedule": "61 * * * *", "timezone": "Mars"}, [("/schedule", "bad_schedule", ""), ("/timezone", "bad_timezone", "")]),
        ({"schedule": None, "timezone": "UTC"}, [("/timezone", "unexpected_timezone", "")]),
        ({"schedule": 5}, [("/schedule", "bad_import", "")]),
    ],
)
def test_a_schedule_that_cannot_be_kept_is_refused(change: dict[str, Any], errors: list[tuple[str, str, str]]) -> None:
    for answer in (
        call(World(), "POST", "/v1/imports", json=DATABASE | change),
        call(scheduled(), "PUT", "/v1/imports/crm/schedule", json=change),
    ):
        assert answer.status_code == 400
        found = answer.json()["errors"]
        assert [(one["pointer"], one["code"]) for one in found] == [one[:2] for one in errors]
        assert all(reason in one["message"] and one["expected"] for one, (_, _, reason) in zip(found, errors, strict=True))


def test_files_have_no_schedule() -> None:
    answer = call(World(), "POST", "/v1/imports", json=BODY | {"schedule": "0 * * * *"})
    assert [(one["pointer"], one["code"]) for one in answer.json()["errors"]] == [("/schedule", "unexpected_schedule")]
