"""The audit log: which writes it contains, what of them, and its pages."""

from typing import Any

import pytest

from starling_api.audit.audit import DEFAULT_SECONDS
from starling_api.http.pagination import make_cursor
from starling_common.cassandra.read_models import AUDIT_PERIOD_MICROS, audit_period
from starling_common.time.instants import format_instant
from tests.unit.api.calls import SEGMENT, call
from tests.unit.api.memory import World

TOKEN = {"name": "ci", "role": "editor"}


def listed(world: World, query: str = "") -> list[dict[str, Any]]:
    answer = call(world, "GET", f"/v1/audit{query}")
    assert answer.status_code == 200, answer.text
    items: list[dict[str, Any]] = answer.json()["items"]
    return items


def revisions(items: list[dict[str, Any]]) -> list[tuple[str, int | None, int | None]]:
    return [(f"{one['method']} {one['path']}", one["revision_before"], one["revision_after"]) for one in items]


def test_a_definition_is_recorded_with_its_revisions() -> None:
    world = World()
    made = call(world, "POST", "/v1/segments", json=SEGMENT, headers={"X-Correlation-Id": "c-7"}, role="make").json()
    world.micros += 1000
    renamed = call(world, "PUT", "/v1/segments/vip", json={**SEGMENT, "name": "V"}).json()
    world.micros += 1000
    assert call(world, "DELETE", "/v1/segments/vip").status_code == 204
    first, *_ = items = listed(world)
    archived = items[-1]["revision_after"]
    assert archived > renamed["revision"]
    assert revisions(items) == [
        ("POST /v1/segments", None, made["revision"]),
        ("PUT /v1/segments/vip", made["revision"], renamed["revision"]),
        ("DELETE /v1/segments/vip", renamed["revision"], archived),
    ]
    assert first["actor"].startswith("marketer-")
    assert {field: first[field] for field in ("role", "resource", "key", "correlation_id", "actor_name", "workspace")} == {
        "role": "editor", "resource": "segments", "key": "vip", "correlation_id": "c-7", "actor_name": "", "workspace": "acme",
    }  # fmt: skip


def test_what_changes_nothing_is_not_recorded() -> None:
    world = World()
    call(world, "POST", "/v1/segments", json=SEGMENT, headers={"Idempotency-Key": "k"})
    call(world, "POST", "/v1/segments", json=SEGMENT, headers={"Idempotency-Key": "k"})  # a repetition
    call(world, "POST", "/v1/segments", json=SEGMENT)  # refused: the key is taken
    call(world, "PUT", "/v1/segments/vip", json=SEGMENT)  # equal
    call(world, "PUT", "/v1/segments/vip?dry_run=true", json={**SEGMENT, "name": "V"})
    call(world, "GET", "/v1/segments/vip")
    call(world, "DELETE", "/v1/segments/vip", role="see")  # forbidden
    assert [one["method"] for one in listed(world)] == ["POST"]


def test_a_batch_has_a_record_for_each_changed_segment() -> None:
    world = World()
    call(world, "POST", "/v1/segments", json=SEGMENT)
    other = {**SEGMENT, "key": "loyal"}
    world.micros += 1
    assert call(world, "POST", "/v1/segments:batch", json={"segments": [SEGMENT, other]}).status_code == 200
    found = [(one["path"], one["resource"], one["key"]) for one in listed(world)]
    assert found == [("/v1/segments", "segments", "vip"), ("/v1/segments:batch", "segments", "loyal")]


def test_every_kind_of_write_is_recorded_and_no_secret_with_it() -> None:
    world = World()

    def write(method: str, path: str, **request: Any) -> Any:
        world.micros += 1
        answer = call(world, method, path, **request)
        return answer.json() if answer.content else None

    token = write("POST", "/v1/tokens", json=TOKEN)
    own = token["secret"]
    write("PUT", "/v1/lists/fair", json={}, role=own)
    write("PUT", "/v1/lists/fair/members", json={"users": ["ada"]}, role=own)
    key = write("POST", "/v1/write-keys", json={"name": "web"})
    hook = write("POST", "/v1/webhooks", json={"key": "crm", "url": "https://crm.example/hook"})
    turned = write("POST", "/v1/webhooks/crm/rotate-secret")
    again = write("POST", f"/v1/tokens/{token['id']}/rotate")
    write("DELETE", f"/v1/write-keys/{key['id']}")
    items = listed(world)
    assert [(one["method"], one["resource"], one["key"]) for one in items] == [
        ("POST", "tokens", token["id"]),
        ("PUT", "lists", "fair"),
        ("PUT", "lists", "fair"),
        ("POST", "write-keys", key["id"]),
        ("POST", "webhooks", "crm"),
        ("POST", "webhooks", "crm"),
        ("POST", "tokens", token["id"]),
        ("DELETE", "write-keys", key["id"]),
    ]
    assert (items[1]["actor"], items[1]["actor_name"]) == (token["id"], "ci")
    for secret in (own, again["secret"], key["secret"], hook["secret"], turned["secret"]):
        assert secret not in repr(world.audited)


def test_the_policy_has_revisions_and_an_equal_write_no_record() -> None:
    world = World()
    for hours in ("21:00", "21:00", "22:00"):
        world.micros += 1
        policy = {"quiet_hours": {"from": hours, "to": "08:00"}}
        assert call(world, "PUT", "/v1/policy", json=policy).status_code == 200
    first, second = listed(world)
    assert [(one["resource"], one["key"]) for one in (first, second)] == [("policy", "policy")] * 2
    assert (first["revision_before"], second["revision_before"]) == (None, first["revision_after"])
    assert second["revision_after"] > first["revision_after"]


def test_filters_and_pages() -> None:
    world = World(micros=2 * DEFAULT_SECONDS * 1_000_000)
    for number in range(3):
        call(world, "POST", "/v1/segments", json={**SEGMENT, "key": f"s{number}"}, role="make")
        world.micros += 1_000_000
    call(world, "PUT", "/v1/lists/fair", json={})
    actor = listed(world)[0]["actor"]
    assert [one["key"] for one in listed(world, f"?actor={actor}")] == ["s0", "s1", "s2"]
    assert [one["key"] for one in listed(world, "?resource=lists")] == ["fair"]
    assert [one["key"] for one in listed(world, "?resource_key=s1")] == ["s1"]
    assert [one["key"] for one in listed(world, "?method=PUT")] == ["fair"]
    assert call(world, "GET", "/v1/audit?method=GET").status_code == 400
    since = format_instant(world.micros // 1000 - 2_000)
    assert [one["key"] for one in listed(world, f"?since={since}")] == ["s1", "s2", "fair"]
    first = call(world, "GET", "/v1/audit?limit=3").json()
    second = call(world, "GET", f"/v1/audit?limit=3&cursor={first['next_cursor']}").json()
    assert [one["key"] for one in first["items"] + second["items"]] == ["s0", "s1", "s2", "fair"]
    assert second["next_cursor"] is None
    assert call(world, "GET", "/v1/audit?since=soon").json()["code"] == "bad_instant"
    world.micros += (DEFAULT_SECONDS + 1) * 1_000_000
    assert listed(world) == []
    assert len(listed(world, "?since=1970-01-01")) == 4


def test_another_workspace_is_not_shown_and_only_an_admin_reads() -> None:
    world = World()
    call(world, "POST", "/v1/segments", json=SEGMENT)
    world.audited.append({**world.audited[0], "workspace": "other"})
    assert len(listed(world)) == 1
    for role in ("see", "make", "approve"):
        assert call(world, "GET", "/v1/audit", role=role).status_code == 403


def test_a_write_succeeds_without_its_record_which_is_logged(capsys: Any) -> None:
    world = World(audit_is_down=True)
    assert call(world, "POST", "/v1/segments", json=SEGMENT).status_code == 201
    assert "audit_not_published" in capsys.readouterr().out


def test_pages_go_on_over_periods_and_end_after_the_rows_that_are_scanned(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(micros=5 * AUDIT_PERIOD_MICROS - 3_000_000)
    for number in range(6):
        call(world, "POST", "/v1/segments", json={**SEGMENT, "key": f"s{number}"})
        world.micros += 1_000_000
    assert {audit_period(one["recorded_at"]) for one in world.audited} == {4, 5}
    monkeypatch.setattr("starling_api.audit.audit._READ_ROWS", 2)
    monkeypatch.setattr("starling_api.audit.audit.MAX_SCANNED", 2)
    found: list[str] = []
    sizes, cursor = [], ""
    while True:
        page = call(world, "GET", f"/v1/audit?limit=5{cursor}").json()
        sizes.append(len(page["items"]))
        found += [one["key"] for one in page["items"]]
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert found == [f"s{number}" for number in range(6)]
    assert len(sizes) > 2
    assert max(sizes) <= 5


def test_a_cursor_that_no_page_gave_is_refused_or_begins_at_since() -> None:
    world = World(micros=2 * DEFAULT_SECONDS * 1_000_000)
    call(world, "POST", "/v1/segments", json=SEGMENT)
    for position in ((2**63, "", "", ""), ("1", "", "", ""), (1, "", "")):
        assert call(world, "GET", f"/v1/audit?cursor={make_cursor('audit', position)}").json()["code"] == "bad_cursor"
    early = make_cursor("audit", (-(2**62), "", "", ""))
    assert [one["key"] for one in call(world, "GET", f"/v1/audit?cursor={early}").json()["items"]] == ["vip"]
    late = make_cursor("audit", (2**62, "", "", ""))
    assert call(world, "GET", f"/v1/audit?cursor={late}").json()["items"] == []
