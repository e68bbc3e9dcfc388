"""Door: uploads of lists, as JSON and CSV."""

import json
import random
from typing import Any, Final

import httpx

from tests.fuzz import hostile
from tests.fuzz.definitions import checked
from tests.fuzz.tally import Account, Defect, Input

LISTS: Final = ("fz_list_0", "fz_list_1", "fz_list_2")
EXPECTED: Final = frozenset({200, 201, 400, 409, 413, 422})
_ROWS: Final = (
    b"id-1\n", b'"id, 2"\r\n', b'"open', b"a,b\n", b"\n", b"\r", b"\x00\n", b"\xff\xfe\n", b"\xef\xbb\xbfid-3\n",
    b'""\n', b'"a""b"\n', b" \n",
    b"x" * 1_025 + b"\n", b"y" * 140_000 + b"\n", "é\n".encode(), b"=cmd()\n",
)  # fmt: skip


class Lists:
    """Uploads to three lists of the attacker. An accepted upload states how many ids it had."""

    name = "list uploads"
    pace = 12.0

    def __init__(self, api: httpx.Client) -> None:
        self._client = api
        for name in LISTS:
            checked(self._client.put(f"/v1/lists/{name}", json={"name": name}), EXPECTED)

    def make(self, dice: random.Random) -> Input:
        """Return method, list, content type and body."""
        as_csv = dice.random() < 0.5
        body = self._csv(dice) if as_csv else self._json(dice)
        if dice.random() < 0.3:
            body = hostile.broken(dice, body)
        types = (
            ("text/csv", "text/csv; charset=latin-1") if as_csv else ("application/json", "application/octet-stream", "TEXT/CSV")
        )
        query = {"dry_run": "true"} if dice.random() < 0.5 else {}
        method = dice.choice(("PUT", "POST", "POST", "DELETE"))
        return {"method": method, "list": dice.choice(LISTS), "type": dice.choice(types), "body": body, "query": query}

    def send(self, given: Input, number: int) -> bool:
        """Send the upload."""
        path = f"/v1/lists/{given['list']}/members"
        answer = self._client.request(
            given["method"], path, content=given["body"], params=given["query"], headers={"Content-Type": given["type"]}
        )
        checked(answer, EXPECTED)
        if answer.status_code == 200 and not any(isinstance(value, int) for value in answer.json().values()):
            raise Defect(f"an accepted upload without a count: {answer.text[:300]}")
        return answer.status_code < 300

    def account(self) -> Account:
        """Read every list to its end: what was accepted can be read."""
        found = Account()
        for name in LISTS:
            cursor = None
            while True:
                query: dict[str, Any] = {"limit": 1000} | ({"cursor": cursor} if cursor else {})
                page = checked(self._client.get(f"/v1/lists/{name}/members", params=query), EXPECTED).json()
                found.notes["members"] = found.notes.get("members", 0) + len(page["items"])
                cursor = page["next_cursor"]
                if not cursor:
                    break
        return found

    @staticmethod
    def _json(dice: random.Random) -> bytes:
        users = [
            hostile.text(dice) if dice.random() < 0.3 else f"fz-{dice.randrange(300)}" for _ in range(dice.choice((0, 1, 5, 200)))
        ]
        document: Any = {"users": users}
        return hostile.as_bytes(dice, hostile.mutated(dice, document) if dice.random() < 0.4 else json.loads(json.dumps(document)))

    @staticmethod
    def _csv(dice: random.Random) -> bytes:
        rows = [
            dice.choice(_ROWS) if dice.random() < 0.3 else b"fz-%d\n" % dice.randrange(300)
            for _ in range(dice.choice((0, 1, 5, 200)))
        ]
        return b"".join(rows)
