"""Door: definitions through the Segment API, from a grammar of the language with extreme operands."""

import copy
import json
import random
from functools import cache
from typing import Any, Final

import httpx

from starling_segments.aggregates.measure_table import MEASURES, PLAIN
from starling_segments.language.operators import OPERATORS, operands
from starling_segments.parse.windows import CALENDAR
from tests.fuzz import hostile
from tests.fuzz.tally import Account, Defect, Input
from tests.property.segments.extremes import OPERANDS, placed_in
from tests.unit.segments.cases import CASES

Doc = dict[str, Any]
EVENTS: Final = ("Order Completed", "Cart", "Home", "A*", "*", "")
PATHS: Final = ("revenue", "products.*.price", "products.0", "plan", "tags", "a.b.c", "", "*", "x" * 257, "\x00")
DURATIONS: Final = ("1s", "5m", "30d", "1095d", "1096d", "0s", "-1d", "999999999w", "1", "")
KEPT: Final = 12
"""Accepted segments that stay in force at the same time, while hostile events arrive."""
EXPECTED: Final = frozenset({200, 201, 204, 400, 404, 409, 412, 413, 422, 429})


def predicate(dice: random.Random, depth: int) -> Doc:
    """Return an operator with an operand, often an extreme one."""
    name = dice.choice(list(OPERATORS))
    operator = OPERATORS[name]
    found: Doc = {"op": name}
    if operator.filters:
        found["where"] = {"item": dice.choice(PATHS), **predicate(dice, depth - 1)} if depth > 0 else {}
    elif operator.operand is not operands.NOTHING or dice.random() < 0.05:
        found["value"] = _operand(dice, operator.operand.schema)
    if dice.random() < 0.1:
        found["ignore_case"] = dice.choice((True, False, 1))
    return found


def _operand(dice: random.Random, schema: Any) -> Any:
    if dice.random() < 0.5:
        return dice.choice(list(placed_in(schema, dice.choice(OPERANDS))))
    plain: tuple[Any, ...] = (
        1,
        2.5,
        "pro",
        "30d",
        "2026-01-01",
        [1, 2],
        ["a"],
        [3, 0],
        {"trait": "plan"},
        {"lat": 1, "lon": 2, "radius": 5},
    )
    return dice.choice(plain)


def condition(dice: random.Random, depth: int) -> Any:
    """Return one condition of the language, valid or nearly."""
    kind = dice.randrange(9)
    if depth > 0 and kind < 3:
        name = dice.choice(("all", "any", "not"))
        parts = [condition(dice, depth - 1) for _ in range(dice.choice((0, 1, 2, 3, 20)))]
        return {name: condition(dice, depth - 1) if name == "not" else parts}
    if kind == 3 and depth > 0:
        steps = [event(dice, 0) for _ in range(dice.choice((1, 2, 3, 70)))]
        return {"sequence": steps, "within": dice.choice(DURATIONS)}
    if kind == 4:
        return {"segment": dice.choice(("other", "fz_1", ""))} if dice.random() < 0.5 else {"list": dice.choice(("vips", ""))}
    if kind == 5:
        return {
            "trait": dice.choice(PATHS),
            **predicate(dice, 2),
            **({"held_for": dice.choice(DURATIONS)} if dice.random() < 0.2 else {}),
        }
    if kind == 6:
        return hostile.value(dice)
    return event(dice, depth)


def event(dice: random.Random, depth: int) -> Doc:
    """Return a condition on events: a count, a measure, a window, and conditions on properties."""
    found: Doc = {"event": dice.choice(EVENTS)}
    if dice.random() < 0.5:
        found["where"] = {dice.choice(("property", "context")): dice.choice(PATHS), **predicate(dice, depth)}
    if dice.random() < 0.6:
        name = dice.choice(list(MEASURES))
        found["measure"] = name if name in PLAIN else {name: dice.choice(PATHS)}
        if name == "percentile":
            found["measure"] = {name: dice.choice(PATHS), "q": dice.choice((0, 0.5, 1, 2, -1, 10**400))}
        found |= predicate(dice, 0)
    match dice.randrange(5):
        case 0:
            found["within"] = dice.choice(DURATIONS)
        case 1:
            found["calendar"] = dice.choice((*CALENDAR, "this_aeon"))
        case 2:
            found[dice.choice(("after", "before"))] = dice.choice(hostile.INSTANTS)
        case 3:
            found["between_ago"] = [dice.choice(DURATIONS), dice.choice(DURATIONS)]
    return found


def definition(dice: random.Random, key: str) -> Any:
    """Return a definition: from the grammar, or a documented one with changed places."""
    kind = dice.randrange(4)
    where = condition(dice, dice.choice((0, 1, 2, 4))) if kind < 2 else _case(dice)
    if kind == 2:
        where = hostile.mutated(dice, where)
    made: Any = {"key": key, "name": "fuzz", "where": where}
    if dice.random() < 0.15:
        made["timezone"] = dice.choice(("UTC", "Europe/Berlin", "Pacific/Kiritimati", "Mars/Base", "", 5, "../../etc/passwd"))
    if dice.random() < 0.1:
        made["description"] = hostile.text(dice)
    return hostile.mutated(dice, made) if dice.random() < 0.1 else made


def _case(dice: random.Random) -> Any:
    return copy.deepcopy(dice.choice(_wheres()))


@cache
def _wheres() -> list[Any]:
    stories = [json.loads(path.read_text()) for path in sorted(CASES.rglob("*.json"))]
    segments = [segment for story in stories for case in story["cases"] for segment in case.get("segments", [])]
    return [segment["where"] for segment in segments if "where" in segment]


class Definitions:
    """Half of the requests create nothing: previews and dry runs. Of the others the newest stay in force."""

    name = "definitions"
    pace = 15.0

    def __init__(self, api: httpx.Client) -> None:
        self._client = api
        self._kept: list[str] = []

    def make(self, dice: random.Random) -> Input:
        """Return a call, with its body as bytes."""
        key = f"fz_{dice.getrandbits(40):x}"
        document = definition(dice, key)
        body = hostile.as_bytes(dice, document)
        if dice.random() < 0.05:
            body = hostile.broken(dice, body)
        way = dice.choices(("create", "dry run", "preview", "update", "trait", "webhook", "batch"), (6, 6, 2, 1, 1, 1, 1))[0]
        return {"way": way, "body": body}

    def send(self, given: Input, number: int) -> bool:
        """Send it. An accepted segment stays in force until newer ones replace it."""
        way, body = given["way"], given["body"]
        match way:
            case "dry run":
                answer = self._client.post("/v1/segments", params={"dry_run": "true"}, content=body)
            case "preview":
                answer = self._client.post("/v1/segments/preview", content=body)
            case "update" if self._kept:
                answer = self._client.put(f"/v1/segments/{self._kept[number % len(self._kept)]}", content=body)
            case "trait":
                answer = self._client.post("/v1/computed-traits", params={"dry_run": "true"}, content=body)
            case "webhook":
                answer = self._client.post("/v1/webhooks", params={"dry_run": "true"}, content=body)
            case "batch":
                answer = self._client.post(
                    "/v1/segments:batch", params={"dry_run": "true"}, content=b'{"segments": [' + body + b"]}"
                )
            case _:
                answer = self._client.post("/v1/segments", content=body)
        checked(answer, EXPECTED)
        if way == "create" and answer.status_code == 201:
            self._kept.append(json.loads(answer.content)["key"])
            if len(self._kept) > KEPT:
                self._drop(self._kept.pop(0))
        return answer.status_code < 300

    def account(self) -> Account:
        """Check that every segment that was accepted last is in force, and archive it."""
        found = Account()
        for key in self._kept:
            answer = self._client.get(f"/v1/segments/{key}")
            if answer.status_code != 200 or answer.json()["status"] not in {"active", "paused"}:
                found.lost.append((-1, f"{key} was accepted, and is not in force: {answer.text[:300]}"))
            self._drop(key)
        self._kept.clear()
        return found

    def _drop(self, key: str) -> None:
        checked(self._client.delete(f"/v1/segments/{key}"), EXPECTED)


def checked(answer: httpx.Response, expected: frozenset[int]) -> httpx.Response:
    """Return an answer of an expected status, a refusal with its reason. Raises: Defect."""
    request = answer.request
    if answer.status_code not in expected:
        raise Defect(f"{request.method} {request.url.path} answered {answer.status_code}: {answer.text[:300]}")
    if answer.status_code >= 400 and request.method != "HEAD" and not answer.json().get("code"):
        raise Defect(f"{request.method} {request.url.path} answered {answer.status_code} without a reason: {answer.text[:300]}")
    return answer
