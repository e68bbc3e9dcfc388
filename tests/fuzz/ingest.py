"""Door: the bodies of every route of the ingest API, over a socket."""

import json
import random
from collections import Counter
from typing import Any, Final

import httpx
import msgspec

from starling_common.wire import PROTOBUF, Batch
from starling_ingest.app import ROUTES
from tests.fuzz import hostile
from tests.fuzz.letters import Letters
from tests.fuzz.payloads import batch_message, batch_of, item_message, items, recorded
from tests.fuzz.tally import Account, Defect, Input

USERS: Final = 300
EXPECTED: Final = frozenset({200, 400, 401, 408, 413, 415, 429})


def make_body(dice: random.Random) -> Input:
    """Return a route, a body in one of its forms, and the headers that name the form."""
    path = dice.choice(list(ROUTES))
    kind = ROUTES[path].kind
    if kind is None:
        chosen = [_of_user(dice, dice.choice(items())) for _ in range(dice.choice((1, 1, 2, 5)))]
        document: Any = dice.choice((batch_of(chosen), batch_of(chosen), dice.choice(recorded())))
    else:
        chosen = [_of_user(dice, dice.choice([item for item in items() if item.get("type", kind) == kind]))]
        document = chosen[0]
    headers: dict[str, str] = {}
    if dice.random() < 0.9:
        document = hostile.mutated(dice, document)
    if dice.random() < 0.2:
        made = batch_message(chosen) if kind is None else item_message(document if isinstance(document, dict) else chosen[0])
        body = made.SerializeToString()
        headers["Content-Type"] = dice.choice((PROTOBUF, f"{PROTOBUF}; charset=utf-8"))
    else:
        body = hostile.as_bytes(dice, document)
        headers["Content-Type"] = dice.choice(("application/json", "text/plain;charset=UTF-8", "application/x-protobuf", ""))
    if dice.random() < 0.35:
        body = hostile.broken(dice, body)
    if dice.random() < 0.15:
        body, headers["Content-Encoding"] = hostile.packed(dice, body)
    return {"path": path, "body": body, "headers": headers}


def _of_user(dice: random.Random, item: dict[str, Any]) -> dict[str, Any]:
    """Return the item with a user of the attack and a message id of its own; some ids repeat."""
    user = f"fz-{dice.randrange(USERS)}"
    own = {"userId": user} if "userId" in item or dice.random() < 0.5 else {"anonymousId": f"anon-{user}"}
    return {**item, **own, "messageId": f"m-{dice.randrange(10**9 if dice.random() < 0.95 else 5)}"}


def item_count(path: str, body: bytes, *, protobuf: bool) -> int:
    """Return the number of items of an accepted body, read by other code than the edge's."""
    if ROUTES[path].kind is not None:
        return 1
    return len(Batch.FromString(body).batch) if protobuf else len(json.loads(body)["batch"])


class Ingest:
    """Every accepted item has one outcome, and every rejected one a dead letter of the edge."""

    name = "ingest bodies"
    pace = 120.0

    def __init__(self, client: httpx.Client, write_key: str, mark: str, letters: Letters) -> None:
        """`mark` begins the correlation ids of this attack."""
        self._client = client
        self._key = write_key
        self._mark = f"{mark}-body-"
        self._letters = letters
        self._accepted: dict[str, int] = {}
        self._rejected: dict[str, int] = {}

    def make(self, dice: random.Random) -> Input:
        """Return one body."""
        made = make_body(dice)
        if dice.random() < 0.98:
            made["headers"]["X-Write-Key"] = "valid"
        return made

    def send(self, given: Input, number: int) -> bool:
        """Post the body, and check the form of the answer."""
        correlation_id = f"{self._mark}{number}"
        headers = {**given["headers"], "X-Correlation-Id": correlation_id}
        if "X-Write-Key" in headers:
            headers["X-Write-Key"] = self._key
        try:
            answer = self._client.post(given["path"], content=given["body"], headers=headers)
        except httpx.LocalProtocolError:  # a header that the client library does not send; `Headers` sends such bytes
            return False
        if answer.status_code not in EXPECTED:
            raise Defect(f"{given['path']} answered {answer.status_code}: {answer.text[:300]}")
        document = answer.json()
        rejected = document.get("rejected", [])
        if not isinstance(document.get("success"), bool) or not (document["success"] or document.get("code") or rejected):
            raise Defect(f"an answer without a reason: {answer.text[:300]}")
        if rejected:
            self._rejected[correlation_id] = len(rejected)
        if answer.status_code == 200:
            self._accepted[correlation_id] = document["accepted"] if rejected else self._items(given, headers)
        return answer.status_code == 200 and not rejected

    def _items(self, given: Input, headers: dict[str, str]) -> int:
        body = given["body"]
        if headers.get("Content-Encoding"):
            body = self._unpacked(body, headers["Content-Encoding"])
        protobuf = body[:1] != b"{" and headers["Content-Type"].startswith(PROTOBUF)
        try:
            return item_count(given["path"], body, protobuf=protobuf)
        except ValueError:  # a body that Python reads differently, such as half of a surrogate pair
            return len(msgspec.json.decode(body)["batch"])

    @staticmethod
    def _unpacked(body: bytes, encoding: str) -> bytes:
        import gzip  # noqa: PLC0415 - one use

        return gzip.decompress(body) if "gzip" in encoding else body

    def account(self) -> Account:
        """Compare the answers with the outcomes and the dead letters."""
        outcomes = self._letters.outcomes(self._mark)
        edge = Counter(letter["correlation_id"] for letter in self._letters.of("ingest", self._mark))
        found = Account(dead_letters=sum(edge.values()))
        without_outcome: Counter[str] = Counter()
        refused: Counter[str] = Counter()
        for letter in self._letters.of("normalizer", self._mark):
            found.dead_letters += 1
            (without_outcome if letter["code"] == "poison" else refused)[letter["correlation_id"]] += 1
            if letter["code"] == "poison":
                found.notes["poison"] = found.notes.get("poison", 0) + 1
        for correlation_id, count in self._accepted.items():
            known = outcomes[correlation_id].total() + without_outcome[correlation_id]
            if known != count:
                found.lost.append((self._number(correlation_id), f"{count} items accepted, the outcome of {known} is known"))
            if outcomes[correlation_id]["REFUSED"] != refused[correlation_id]:
                found.lost.append((self._number(correlation_id), "an item with the outcome REFUSED has no dead letter"))
        for correlation_id, count in self._rejected.items():
            if edge[correlation_id] != count:
                found.lost.append((self._number(correlation_id), f"{count} items rejected, {edge[correlation_id]} dead letters"))
        return found

    def _number(self, correlation_id: str) -> int:
        return int(correlation_id.removeprefix(self._mark))
