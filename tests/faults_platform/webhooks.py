"""The endpoint of the webhook, which keeps every message that arrives."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from starling_demo.receiver import Receiver
from tests.faults.findings import Findings

SAME: Final = ("user_id", "segment_key", "segment_version", "status", "sequence")
"""The fields of a message that follow from the items alone."""


@dataclass(frozen=True)
class Arrived:
    """A message with a valid signature: the id of its header, and its body."""

    id: str
    body: str

    @property
    def data(self) -> dict[str, Any]:
        """The membership change."""
        found: dict[str, Any] = json.loads(self.body)["data"]
        return found


class Endpoint(Receiver):
    """Keeps each call, also the repetitions, and answers 204; 401 without a valid signature."""

    def __post_init__(self) -> None:
        self.arrived: list[Arrived] = []
        super().__post_init__()

    def take(self, headers: dict[str, str], body: bytes) -> int:
        """Return the status of the answer."""
        try:
            Webhook(self.secret).verify(body, headers)
        except WebhookVerificationError:
            with self._lock:
                self.forged += 1
            return 401
        with self._lock:
            self.arrived.append(Arrived(headers["webhook-id"], body.decode()))
        return 204

    def ids(self) -> set[str]:
        """Return the ids so far."""
        return {one.id for one in list(self.arrived)}


def check_webhooks(expected: Sequence[Mapping[str, Any]], arrived: Sequence[Arrived], findings: Findings) -> None:
    """Each membership change arrived under its id, at least once; each id has one body; no other id arrived.

    `expected`: the changes of the webhook's segments, as the fold has them.
    """
    changes = {change["event_id"]: change for change in expected}
    bodies: dict[str, set[str]] = {}
    for one in arrived:
        bodies.setdefault(one.id, set()).add(one.body)
    findings.add("webhooks expected", len(changes))
    findings.add("webhooks that arrived again, with the same id", len(arrived) - len(bodies))
    for missing in changes.keys() - bodies.keys():
        findings.found("lost", f"webhook {missing}: {changes[missing]}")
    for number, found in bodies.items():
        if number not in changes:
            findings.found("wrong", f"webhook {number} belongs to no change: {min(found)[:300]}")
        elif len(found) > 1:
            findings.found("wrong", f"webhook {number} has {len(found)} bodies: {[body[:300] for body in sorted(found)]}")
    last = {one.id: one.data for one in arrived}
    for change, count in Counter(map(_change, last.values())).items():
        if count > 1:
            findings.found("doubled", f"webhook: {count} ids of the change {change}")
    for number, data in last.items():
        if number in changes and (number, _change(data)) != (data["event_id"], _change(changes[number])):
            findings.found("wrong", f"webhook {number}: {data['event_id']} {_change(data)}, expected {_change(changes[number])}")


def _change(fields: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(fields[name] for name in SAME)
