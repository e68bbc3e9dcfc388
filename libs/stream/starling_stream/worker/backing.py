"""Wiring of the second tier: Cassandra behind the local stores where it is configured, nothing where it is not."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from starling_common.database import Database
from starling_stream.model.ports import BackingTier, NoBackingTier
from starling_stream.model.settings import StreamSettings
from starling_stream.state.cassandra import CassandraBacking
from starling_stream.state.flusher import Surroundings, Tier, TierSettings
from starling_stream.state.lazy_restore import Behind, Help, Warming
from starling_stream.state.restore import Restored
from starling_stream.worker.installation import Installation

_LAST_FLUSH_SECONDS: Final = 10.0
_READERS: Final = 4


class SecondTier:
    """The tier of one worker, and how tasks are warmed from it."""

    def __init__(self, found: Installation, settings: StreamSettings, around: Surroundings, wake: Callable[[], None]) -> None:
        """Opens nothing."""
        self.tier: BackingTier = NoBackingTier()
        self._settings = settings
        self._around = around
        self._wake = wake
        self._flushing: Tier | None = None
        self._reads = ThreadPoolExecutor(_READERS, thread_name_prefix="cold-reads")
        self._background = ThreadPoolExecutor(1, thread_name_prefix="hydrate")
        if settings.cassandra is not None and settings.tier:
            backing = CassandraBacking(Database(settings.cassandra), settings.tier_buckets)
            around.gauges.bounded(settings.tier_dirty_bytes)
            how = TierSettings(settings.tier_flush_seconds, settings.tier_dirty_bytes)
            self.tier = self._flushing = Tier(backing, found.facts, found.origin.topic_id, how, around)

    def start(self) -> None:
        """Blocks until Cassandra answers, within reason. Raises: FactsDiffer."""
        if self._flushing is not None:
            self._flushing.start(self._settings.tier_wait_seconds)

    def close(self) -> None:
        """After all partitions were released. Blocks while the last states are flushed, within reason."""
        self._reads.shutdown(wait=False, cancel_futures=True)
        self._background.shutdown(wait=False, cancel_futures=True)
        if self._flushing is not None:
            self._flushing.close(_LAST_FLUSH_SECONDS)

    def warming(self, partition: int, found: Restored, warm: Callable[[], None]) -> Warming:
        """What serves a task while some of its users are in the tier alone. Raises: RuntimeError without a tier."""
        tier, incarnation = self._flushing, found.store.incarnation()
        if tier is None or incarnation is None:
            raise RuntimeError(f"partition {partition} has users that are only in Cassandra, which is not configured")
        around = self._around
        helped = Help(
            reads=self._reads,
            background=self._background,
            gauges=around.gauges,
            wake=self._wake,
            warm=warm,
            crash=around.crash,
            patience_seconds=self._settings.tier_patience_seconds,
        )
        return Warming(found.store, Behind(tier.backing, tier.place(partition, incarnation)), found.due_from_ms, helped)
