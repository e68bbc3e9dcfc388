"""Pure core: what a follower depends on, and its limits."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from starling_audience.changes import Change
from starling_audience.consent import Consent
from starling_audience.definitions import AudienceTarget
from starling_audience.following.sending import Sent
from starling_audience.positions import Ends
from starling_audience.stores.outbox import Outcomes
from starling_audience.stores.read_model import KnownUser
from starling_common.telemetry.metrics import Metrics
from starling_common.wire import Codec


class Sends(Protocol):
    """Sends the batches of one target."""

    def send(self, changes: Sequence[Change]) -> Sent:
        """Send a batch and return what became of it."""


class Stores(Protocol):
    """Stores what became of batches."""

    def store(self, target: AudienceTarget, outcomes: Outcomes) -> None:
        """Publish the reports and the dead letters of a batch."""

    def disable(self, target: AudienceTarget, why: str) -> None:
        """Publish that a target is disabled."""


class Reads(Protocol):
    """The present state of users."""

    def users(self, workspace: str, users: Sequence[str]) -> Mapping[str, KnownUser]:
        """Return the users by id."""

    def is_current(self, positions: Mapping[int, int]) -> bool:
        """Return whether the state has every change before these offsets, by partition."""


class Probes(Protocol):
    """The offsets of topics."""

    def ends(self, numbers: Sequence[int]) -> Mapping[int, Ends]:
        """Return the offsets of each partition number."""


@dataclass(frozen=True)
class Parts:
    """The dependencies of followers. `refreshed`: returns the consent with every change that was written before the call.

    `codec`: a codec of a topic, which only the calling thread uses.
    """

    brokers: str
    codec: Callable[[str], Codec]
    consent: Callable[[], Consent]
    refreshed: Callable[[], Consent]
    probe: Probes
    read_model: Reads
    outbox: Stores
    metrics: Metrics
    passed: Callable[[str], None] = lambda _point: None


@dataclass(frozen=True, slots=True)
class Limits:
    """`batch_seconds`: the most time to gather a batch. `queue_kbytes`: unread records. The rest: see `Circuit`."""

    batch_seconds: float
    queue_kbytes: int
    first_retry_seconds: float = 1.0
    probe_seconds: float = 30.0
