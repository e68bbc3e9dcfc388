"""An endpoint that takes batches."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from starling_demo.receiver import Receiver


@dataclass
class BatchReceiver(Receiver):
    """Keeps each accepted request, the repetitions too. It answers 422 to a batch with a user of `bad`, else 204.

    `before` is called with the number of the request before its answer.
    """

    bad: set[str] = field(default_factory=set)
    before: Callable[[int], None] = lambda _number: None
    batches: list[dict[str, Any]] = field(default_factory=list)
    requests: int = 0

    def take(self, headers: dict[str, str], body: bytes) -> int:
        """Return the status of the answer."""
        with self._lock:
            self.requests += 1
            number = self.requests
        try:
            Webhook(self.secret).verify(body, headers)
        except WebhookVerificationError:
            with self._lock:
                self.forged += 1
            return 401
        self.before(number)
        message = json.loads(body)
        if self.bad & set(users_of(message)):
            return 422
        with self._lock:
            self.batches.append({"id": headers["webhook-id"], **message})
        return 204

    def users(self) -> list[str]:
        """Return the users of all changes so far, in the order of their arrival."""
        return [user for message in list(self.batches) for user in users_of(message)]


def users_of(message: dict[str, Any]) -> list[str]:
    """Return the users of a batch."""
    return [one["data"]["user_id"] for one in message["data"]]
