"""Records as the tests of delivery need them."""

import json
from typing import Any

from starling_common.outcome import Refused
from starling_delivery.policy import Request, Step, requests_for
from starling_delivery.targets import Targets

SECRET = "whsec_" + "QUJDREVGR0hJSktMTU5PUFFSU1RVVldY"


def definition(key: str = "hook", action: str = "DEFINED", **document: Any) -> dict[str, Any]:
    body = {"key": key, "url": "https://example.com/hook", "secret": SECRET} | document
    return {"workspace": "default", "key": key, "version": 1, "action": action, "document": json.dumps(body)}


def targets(*definitions: dict[str, Any]) -> Targets:
    found = Targets()
    for record in definitions or (definition(),):
        found.apply(record)
    return found


def change(user: str = "ada", status: str = "ENTERED", segment: str = "vip", **more: Any) -> dict[str, Any]:
    record = {
        "event_id": f"event-of-{user}-{segment}-{status}",
        "workspace": "default",
        "user_id": user,
        "anonymous_ids": [],
        "segment_key": segment,
        "segment_name": "VIP",
        "segment_version": 1,
        "status": status,
        "sequence": 1 if status == "ENTERED" else 2,
        "effective_at": 1_000,
        "decided_at": 2_000,
        "cause": {"kind": "EVENT", "message_id": "m1", "event_name": "Order Completed"},
        "correlation_id": "c1",
        "traits": '{"plan":"pro"}',
        "memberships": [segment],
        "received_at": 1_500_000,
    }
    return record | more


def request(attempt: int = 1, first_attempt_at: int = 0, user: str = "ada", **more: Any) -> dict[str, Any]:
    [made] = requests_for(change(user), targets(), "webhook", first_attempt_at)
    return made | {"attempt": attempt} | more


class Recorded:
    """Keeps the steps; that of one user cannot be published."""

    def __init__(self, steps: list[tuple[str, Step]], unpublishable: str = "", error: Exception | None = None) -> None:
        self.steps = steps
        self.unpublishable = unpublishable
        self.error = error or UnicodeEncodeError("utf-8", "?", 0, 1, "surrogates not allowed")
        self.refused: list[tuple[str, str]] = []
        self.tries = 0

    def record(self, made: Request, step: Step) -> None:
        if made["user_id"] == self.unpublishable:
            self.tries += 1
            raise self.error
        self.steps.append((made["delivery_id"], step))

    def refuse(self, made: Request, why: Refused) -> None:
        self.refused.append((made["delivery_id"], why.code))
