"""Door: cursors, limits and filters of every route that reads, from the OpenAPI document of the running API."""

import base64
import json
import random
from typing import Any, Final
from urllib.parse import quote

import httpx

from starling_api.http.pagination import make_cursor
from tests.fuzz import hostile
from tests.fuzz.definitions import checked
from tests.fuzz.tally import Account, Input

EXPECTED: Final = frozenset({200, 302, 400, 401, 404, 409, 410, 413, 414, 422, 429, 431, 501})
_KEYS: Final = ("fz_list_0", "vip", "fz-1", "fz-anon-1", "..", "%00", "a%2Fb", "x" * 600, "\ud7ff", "é")
_INTEGERS: Final = (0, -1, 1, 2**31, 2**63 - 1, 2**63, -(2**63) - 1, 10**40)
_NUMBERS: Final = ("0", "-1", "1", "1000", "1001", "1e9", "NaN", "", " 5", "9" * 400, "0x10", "٣", "null")


def cursor(dice: random.Random) -> str:
    """Return a forged cursor: nested, with wrong types, with integers out of range, of another list, or with changed bytes."""
    match dice.randrange(6):
        case 0:
            changed = hostile.broken(dice, make_cursor("segment_members", (0, "fz-1")).encode())
            return changed.decode("latin-1")
        case 1:
            content: Any = hostile.nested(dice.choice((5, 500, 5_000)) if dice.random() < 0.5 else 40)
        case 2:
            content = [
                dice.choice(("members", "segments", "users", "feed", "lists", "events")),
                *(dice.choice(_INTEGERS) for _ in range(3)),
            ]
        case 3:
            content = [hostile.value(dice, 1) for _ in range(dice.choice((0, 1, 3, 9)))]
        case 4:
            return hostile.text(dice)[:4_000]
        case _:
            content = hostile.value(dice)
    try:
        return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")[:7_000]
    except RecursionError:
        return "W" * 6_000


class Cursors:
    """Reads with forged parameters change nothing, so an answer is the whole account."""

    name = "cursors and filters"
    pace = 40.0

    def __init__(self, api: httpx.Client) -> None:
        self._client = api
        document = self._client.get("/openapi.json").raise_for_status().json()
        shared = document["components"].get("parameters", {})
        self._routes = []
        for path, calls in document["paths"].items():
            found = [
                shared[one["$ref"].rpartition("/")[2]] if "$ref" in one else one
                for one in calls.get("get", {}).get("parameters", [])
            ]
            if names := [one["name"] for one in found if one["in"] == "query"]:
                self._routes.append((path, names))
        if not self._routes:
            raise RuntimeError("the OpenAPI document has no route with parameters")

    def make(self, dice: random.Random) -> Input:
        """Return a path with forged parameters."""
        path, names = dice.choice(self._routes)
        while "{" in path:
            start, _, rest = path.partition("{")
            path = start + quote(dice.choice(_KEYS), safe="%") + rest.partition("}")[2]
        query = {name: self._value(dice, name) for name in names if dice.random() < (0.7 if name in {"cursor", "after"} else 0.1)}
        return {"path": path, "query": query}

    def send(self, given: Input, number: int) -> bool:
        """Send the request."""
        query = {name: value.encode(errors="replace").decode() for name, value in given["query"].items()}
        try:
            answer = self._client.get(given["path"], params=query)
        except httpx.InvalidURL:  # longer than the client sends
            return False
        checked(answer, EXPECTED)
        return answer.status_code < 300

    def account(self) -> Account:
        """Return nothing more: the answers are complete."""
        return Account()

    def _value(self, dice: random.Random, name: str) -> str:
        if name in {"cursor", "after"}:
            return cursor(dice)
        return dice.choice(_NUMBERS) if name == "limit" or dice.random() < 0.3 else hostile.text(dice)[:2_000]
