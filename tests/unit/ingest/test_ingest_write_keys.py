"""Write keys at the edge: those of the settings and those that the API created, their scopes and their ends."""

from typing import Any

import pytest

from starling_common.records.credentials import SCOPES
from starling_ingest.app import ROUTES
from starling_ingest.write_keys import WriteKeys
from tests.unit.ingest.rig import NOW, Edge, Exchange, MemoryKeys

ITEM = {"userId": "ada", "event": "Buy", "groupId": "g", "previousId": "p", "name": "n", "type": "track"}
BATCH = {"batch": [ITEM]}


def sent(edge: Edge, key: str | None, path: str = "/v1/track", **more: Any) -> Exchange:
    body = BATCH if ROUTES[path].kind is None else ITEM
    headers = {"host": "edge.example"} | ({} if key is None else {"x-write-key": key})
    return edge.ask("POST", path, body | more, headers=headers)


def problem(exchange: Exchange) -> tuple[int, str]:
    assert exchange.headers["content-type"] == "application/problem+json"
    assert exchange.json()["success"] is False
    return exchange.status, exchange.json()["code"]


def test_every_route_needs_a_scope_that_a_key_can_have() -> None:
    assert {route.scope for route in ROUTES.values()} == set(SCOPES)


@pytest.mark.parametrize("scope", SCOPES)
def test_a_key_may_send_to_the_paths_of_its_scope_only(scope: str) -> None:
    edge = Edge().open()
    edge.created.add("stw_one", (scope,))
    for path, route in ROUTES.items():
        answer = sent(edge, "stw_one", path)
        if route.scope == scope:
            assert answer.status == 200, answer.json()
        else:
            assert problem(answer) == (403, "scope_missing")
            expected = f"this write key may not send to {route.name}: it has the scopes {scope}; use another key"
            assert answer.json()["message"] == expected
    assert {record["workspace"] for record in edge.received()} == {"shop"}
    assert edge.dead() == []


def test_a_key_in_the_body_has_its_scopes_too() -> None:
    edge = Edge().open()
    edge.created.add("stw_one", ("page",))
    assert problem(sent(edge, None, writeKey="stw_one")) == (403, "scope_missing")
    assert sent(edge, None, "/v1/page", writeKey="stw_one").status == 200
    assert problem(sent(edge, None, writeKey="stw_two")) == (401, "unknown_write_key")


def test_the_basic_form_of_the_clients_is_accepted() -> None:
    edge = Edge().open()
    edge.created.add("stw_one", ("track",))
    headers = {"authorization": "Basic c3R3X29uZTo=", "host": "edge.example"}  # stw_one:
    assert edge.ask("POST", "/v1/track", ITEM, headers=headers).status == 200


def test_keys_of_the_settings_have_every_scope_and_stay_when_created_ones_change() -> None:
    edge = Edge().open()
    for path in ("/v1/track", "/v1/import"):
        assert sent(edge, "key", path).status == 200
    edge.created.add("stw_one", ("track",))
    assert [sent(edge, key).status for key in ("key", "stw_one")] == [200, 200]


def test_a_revoked_key_is_unknown_at_the_next_request() -> None:
    edge = Edge().open()
    made = edge.created.add("stw_one", ("track",))
    assert sent(edge, "stw_one").status == 200
    edge.created.revoke(made)
    assert problem(sent(edge, "stw_one")) == (401, "unknown_write_key")
    assert edge.ask("GET", "/v1/projects/stw_one/settings").status == 401


def test_a_secret_ends_at_its_expiry() -> None:
    now_ms = [NOW // 1000]
    created = MemoryKeys()
    created.add("stw_one", ("track",), now_ms[0] + 10)
    keys = WriteKeys({}, created, lambda: now_ms[0])
    assert keys.grant("stw_one") is not None
    now_ms[0] += 10
    assert keys.grant("stw_one") is None


def test_before_the_keys_are_read_an_unknown_one_is_sent_again_later() -> None:
    edge = Edge().open()
    edge.created.unread = True
    answer = sent(edge, "stw_one")
    assert problem(answer) == (503, "not_ready")
    assert answer.headers["retry-after"] == "1"
    assert problem(edge.ask("GET", "/v1/projects/stw_one/settings")) == (503, "not_ready")
    assert sent(edge, "key").status == 200


def test_unknown_keys_fill_no_memory() -> None:
    created = MemoryKeys()
    keys = WriteKeys({"key": "acme"}, created)
    for number in range(100):
        assert keys.grant(f"unknown-{number}") is None
    assert len(keys._grants) == 1


def test_the_secret_of_a_key_is_in_no_record_and_no_error() -> None:
    edge = Edge().open()
    edge.created.add("stw_planted", ("track", "batch"))
    answers = [sent(edge, "stw_planted"), sent(edge, "stw_planted", "/v1/page"), sent(edge, "stw_planted", event=None)]
    answers.append(edge.ask("POST", "/v1/batch", {"batch": [{"type": "track"}]}, headers={"x-write-key": "stw_planted"}))
    assert [answer.status for answer in answers] == [200, 403, 400, 400]
    assert len(edge.dead()) == 2
    written = repr(edge.log.records) + repr(edge.log.headers) + "".join(answer.answer.decode() for answer in answers)
    assert "stw_planted" not in written
