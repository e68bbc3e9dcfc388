"""Pure core: a request on its way through the kit."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from starling_delivery.batches import is_call, most_bytes
from starling_delivery.policy import Request
from starling_delivery.progress import Origin
from starling_delivery.targets import Batching

_RECORD_BYTES: Final = 2_048
"""Memory of a request beside its payload."""


@dataclass(eq=False, slots=True)
class Item:
    """A request on its way. `settled` is called after the broker has acknowledged the records of its step.

    `tier` is the position of the tier it was read from; None if it was in none. `is_probe`: its attempt decides on an open circuit.
    `batching`, `rate`: how the target gathers messages, and its requests a second, when the item was offered; `since`: when it
    entered its lane, monotonic in seconds.
    `origin`: the record of the request, which a transaction completes; None once one has.
    `bulk`: whether it is of a broadcast, which triggers do not wait for.
    """

    request: Request
    settled: Callable[[], None]
    tier: int | None = None
    due_ms: int = 0
    is_probe: bool = False
    batching: Batching | None = None
    rate: float | None = None
    size_bytes: int = 0
    sequence: int = 0
    since: float = 0.0
    body_bytes: int = 0
    """The size of its body within a batch, with a comma; 0 without batches."""
    origin: Origin | None = None
    bulk: bool = False
    traceparent: str | None = None
    """The trace context of its record; None while traces are off."""
    message_id: str | None = None
    """The receiver's idempotency key, if it is known without its payload."""
    workspace: str = field(init=False)
    target: str = field(init=False)
    """The key of the target within its workspace."""

    def __post_init__(self) -> None:
        self.workspace, self.target = str(self.request["workspace"]), str(self.request["target_key"])
        self.size_bytes = len(self.request["payload"]) + len(self.request.get("context") or "") + _RECORD_BYTES

    @property
    def most(self) -> int:
        """The maximum of messages of its attempt."""
        if self.batching is None:
            return 1
        return min(self.batching.max_items, self.request.get("batch_limit") or self.batching.max_items)

    @property
    def of_batch(self) -> int:
        """The messages of a full request of its target."""
        return 1 if self.batching is None else self.batching.max_items

    @property
    def sent_at(self) -> float:
        """The time at which it is sent, however few other messages there are."""
        return self.since if self.batching is None or self.most == 1 else self.since + self.batching.max_wait_ms / 1000

    @property
    def most_bytes(self) -> int:
        """The maximum of the bodies of its batch."""
        return most_bytes(self.request["payload"])

    def goes_with(self, other: "Item") -> bool:
        """Return whether both can be in one batch, whatever its size."""
        mine, others = self.request, other.request
        return (self.batching, mine["address"], is_call(mine["payload"])) == (
            other.batching, others["address"], is_call(others["payload"]),
        )  # fmt: skip
