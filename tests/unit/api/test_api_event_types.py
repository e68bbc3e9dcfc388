"""Event types over HTTP, on stores in memory: what a document may be, how it may change, and the tables that statements read."""

from typing import Any

import pytest

from tests.unit.api.calls import call
from tests.unit.api.memory import World

PATH = "/v1/event-types"
REVENUE = {"name": "revenue", "type": "number"}
COUPONS = {"name": "coupons", "type": "string[]"}
BODY: dict[str, Any] = {"key": "order", "event": "Order Completed", "properties": [REVENUE, COUPONS]}
SQL = "SELECT user_id, sum(revenue) AS value FROM event_order WHERE array_contains(coupons, 'VIP') GROUP BY user_id"
TRAIT = {"key": "spent", "sql": SQL, "schedule": "15 * * * *"}


def created() -> World:
    world = World()
    assert call(world, "POST", PATH, json=BODY).status_code == 201
    return world


def errors(world: World, method: str, path: str, body: dict[str, Any]) -> list[tuple[str, str]]:
    answer = call(world, method, path, json=body)
    assert answer.status_code == 422, answer.text
    return [(error["pointer"], error["code"]) for error in answer.json()["errors"]]


def test_an_event_type_is_defined_listed_changed_and_archived() -> None:
    world = World()
    made = call(world, "POST", PATH, json=BODY | {"description": "A paid order", "tags": ["shop"]}).json()
    assert (made["properties"], made["version"], made["status"]) == (BODY["properties"], 1, "active")
    assert [one["key"] for one in call(world, "GET", PATH, role="see").json()["items"]] == ["order"]
    # The response can be edited and sent back.
    more = {"name": "paid_at", "type": "timestamp", "description": "By the bank"}
    changed = call(world, "PUT", f"{PATH}/order", json=made | {"properties": [*made["properties"], more]}).json()
    assert (changed["version"], changed["properties"][2]) == (2, more)
    assert call(world, "PUT", f"{PATH}/order", json=changed | {"description": "Paid"}).json()["version"] == 2
    assert call(world, "PUT", f"{PATH}/order", json=BODY, role="see").status_code == 403
    assert call(world, "DELETE", f"{PATH}/order").status_code == 204
    assert call(world, "GET", f"{PATH}/order").json()["status"] == "archived"
    assert {change.kind for change in world.published} == {"event_type"}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"key": "order-completed"}, [("/key", "bad_key")]),
        ({"key": None}, [("", "missing_field")]),
        ({"event": None, "properties": None}, [("", "missing_field"), ("", "missing_field")]),
        ({"colour": 1, "properties": []}, [("/colour", "unknown_field")]),
        ({"event": "x" * 513, "description": 5}, [("/event", "wrong_type"), ("/description", "wrong_type")]),
        ({"properties": {"revenue": "number"}}, [("/properties", "wrong_type")]),
        ({"properties": [REVENUE] * 201}, [("/properties", "wrong_type")]),
        (
            {
                "properties": [
                    {"name": "order id", "type": "string"}, {"name": "user_id", "type": "text"}, "revenue", REVENUE,
                    {"name": "Revenue", "type": "number", "archived": "yes"}, {"name": "tax", "type": ["number"], "unit": "EUR"},
                ]
            },
            [
                ("/properties/0/name", "bad_name"), ("/properties/1/name", "bad_name"), ("/properties/1/type", "bad_type"),
                ("/properties/2", "wrong_type"), ("/properties/4/name", "bad_name"), ("/properties/4/archived", "wrong_type"),
                ("/properties/5/type", "bad_type"), ("/properties/5/unit", "unknown_field"),
            ],
        ),
    ],
)  # fmt: skip
def test_a_refused_event_type_names_every_error(change: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    assert errors(World(), "POST", PATH, BODY | change) == expected


def test_an_event_has_one_type() -> None:
    world = created()
    assert errors(world, "POST", PATH, BODY | {"key": "sale"}) == [("/event", "event_taken")]
    call(world, "DELETE", f"{PATH}/order")
    assert call(world, "POST", PATH, json=BODY | {"key": "sale"}).status_code == 201


def test_the_event_and_the_types_never_change() -> None:
    world = created()
    changed = {"event": "Order Paid", "properties": [{"name": "revenue", "type": "integer"}, {"name": "tax", "type": "number"}]}
    assert errors(world, "PUT", f"{PATH}/order", BODY | changed) == [
        ("/event", "frozen_field"), ("/properties/0/type", "frozen_field"), ("/properties", "frozen_field"),
    ]  # fmt: skip
    renamed = [{"name": "Revenue", "type": "number"}, COUPONS]
    assert errors(world, "PUT", f"{PATH}/order", BODY | {"properties": renamed}) == [("/properties/0/name", "frozen_field")]
    archived = [REVENUE | {"archived": True}, COUPONS]
    assert call(world, "PUT", f"{PATH}/order", json=BODY | {"properties": archived}).json()["version"] == 2
    assert call(world, "PUT", f"{PATH}/order", json=BODY).json()["version"] == 3


def test_a_statement_reads_the_table_of_an_event_type() -> None:
    world = World()
    assert ("/sql", "unknown_table") in errors(world, "POST", "/v1/computed-traits", TRAIT)
    call(world, "POST", PATH, json=BODY)
    wrong = TRAIT | {"sql": SQL.replace("revenue", "tax")}
    assert errors(world, "POST", "/v1/computed-traits", wrong) == [("/sql", "unknown_column")]
    assert call(world, "POST", "/v1/computed-traits", json=TRAIT).status_code == 201
    assert call(world, "GET", f"{PATH}/order").json()["used_by"] == ["spent"]


def test_what_a_statement_reads_is_not_archived() -> None:
    world = created()
    call(world, "POST", "/v1/computed-traits", json=TRAIT)
    archived = BODY | {"properties": [REVENUE | {"archived": True}, COUPONS]}
    assert errors(world, "PUT", f"{PATH}/order", archived) == [("/properties", "in_use")]
    refused = call(world, "DELETE", f"{PATH}/order")
    assert (refused.status_code, refused.json()["used_by"]) == (409, ["spent"])
    call(world, "DELETE", "/v1/computed-traits/spent")
    assert call(world, "PUT", f"{PATH}/order", json=archived).status_code == 200
    assert ("/sql", "unknown_column") in errors(world, "POST", "/v1/computed-traits", TRAIT | {"key": "spent-2"})
    assert call(world, "DELETE", f"{PATH}/order").status_code == 204
