"""Preview, diff and explain on the whole platform: what has just happened counts, whether or not it has been flushed."""

import uuid
from typing import Any
from urllib.parse import quote

from starling_common.time.instants import parse_instant
from tests.system.conftest import Platform
from tests.system.live import define, members, starling, track


def ask(platform: Platform, path: str, where: dict[str, Any]) -> dict[str, Any]:
    answer = platform.api.post(path, json={"where": where})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def counted(found: dict[str, Any]) -> tuple[int, int, int, set[str]]:
    return found["estimate"], found["low"], found["high"], set(found["sample"])


def test_what_has_just_happened_is_asked_about(live: Platform) -> None:
    name = f"Order {uuid.uuid4().hex}"
    users = [f"{name}-{number}" for number in range(6)]
    for number, user in enumerate(users):
        for _ in range(number):
            track(live, user, name, price=number)
    live.settle()
    dear = {"event": name, "where": {"property": "price", "op": "gte", "value": 4}, "within": "1d"}
    before = ask(live, "/v1/segments/preview", dear)  # no segment keeps any of it: it is found in what users did
    assert counted(before) == (2, 2, 2, set(users[4:]))
    assert (before["exact"], before["limits"]) == (True, [])
    assert before["users"] >= 5
    key = define(live, {"event": name, "op": "gte", "value": 2, "within": "1d"})
    assert counted(ask(live, "/v1/segments/preview", {"segment": key})) == (4, 4, 4, set(users[2:]))
    changed = ask(live, f"/v1/segments/{key}/diff", {"any": [dear, {"event": name, "op": "eq", "value": 1, "within": "1d"}]})
    assert counted(changed["enter"]) == (1, 1, 1, {users[1]})
    assert counted(changed["leave"]) == (2, 2, 2, set(users[2:4]))
    assert counted(changed["stay"]) == (2, 2, 2, set(users[4:]))
    assert members(live, key) == set(users[2:])  # nothing was changed by asking
    track(live, users[1], name, price=1)
    live.settle()
    assert counted(ask(live, "/v1/segments/preview", {"segment": key}))[0] == 5


def test_a_membership_explains_itself(live: Platform) -> None:
    name = f"Order {uuid.uuid4().hex}"
    key = define(
        live, {"all": [{"event": name, "op": "gte", "value": 2, "within": "7d"}, {"trait": "plan", "op": "eq", "value": "pro"}]}
    )
    user = f"u/{uuid.uuid4().hex}"
    for _ in range(2):
        track(live, user, name)
    assert live.ingest.post("/v1/identify", json={"userId": user, "traits": {"plan": "free"}}).status_code == 200
    live.settle()
    explained = live.api.get(f"/v1/users/{quote(user, safe='')}/explain/{key}").json()
    assert explained["member"] is False
    count, trait = explained["tree"]["children"]
    assert (count["node"], count["truth"], count["observed"]) == ("/where/all/0", True, 2)
    assert parse_instant(count["next_change_at"]) > parse_instant(explained["as_of"])
    assert (trait["node"], trait["truth"], trait["observed"], trait["next_change_at"]) == ("/where/all/1", False, "free", None)
    assert live.ingest.post("/v1/identify", json={"userId": user, "traits": {"plan": "pro"}}).status_code == 200
    live.settle()
    assert '"member": true' in starling(live, "segments", "explain", user, key)
    assert live.api.get(f"/v1/users/{quote(f'unknown-{user}', safe='')}/explain/{key}").json()["code"] == "unknown_user"
