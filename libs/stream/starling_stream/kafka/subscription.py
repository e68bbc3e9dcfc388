"""Edge: aiokafka's subscription, changed so that a rebalance does not stop the partitions that stay with the worker.

aiokafka's own protocol is eager: it returns no records from the revocation to the next assignment, and an assignment begins without
positions. Here fetches continue while the members join, and the partitions that stay keep their state, and with it their positions.
"""

from asyncio import Future
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from aiokafka.consumer.fetcher import OffsetResetStrategy
from aiokafka.consumer.subscription_state import SubscriptionState, TopicPartitionState
from aiokafka.structs import TopicPartition

from starling_stream.kafka.membership import Membership, continues


class CooperativeSubscription(SubscriptionState):  # type: ignore[misc] # the client has no types
    """Used by the consumer's thread; the main thread reads the attributes while that thread waits for it."""

    def __init__(self, membership: Callable[[], Membership], is_started: Callable[[], bool]) -> None:
        """`membership`: that of the last join. `is_started`: whether Faust has started its streams, and its part is over."""
        super().__init__()
        self._membership_now = membership
        self._is_started = is_started
        self._held: Membership | None = None
        """The membership of the assignment in force; None once its partitions may belong to other workers."""
        self.is_of_framework = True
        """Whether Faust handles the present rebalance: it stops all partitions, and starts its streams with the first one."""
        self.has_continued = False
        """Whether the partitions that the last two assignments have in common continued."""
        self.assignments: Mapping[Any, object] = MappingProxyType({})
        """Each assigned partition -> an object that identifies its assignment; the same object as long as the partition stays."""

    @property
    def is_lost(self) -> bool:
        """Return whether the group removed this worker, or Faust handles the rebalance: no partition continues."""
        return self._held is None

    def begin_reassignment(self) -> None:
        """Called before the worker joins the group again. Fetches continue while it is a member."""
        self.is_of_framework = not self._is_started()
        if self.is_of_framework or self._membership_now().generation < 0:
            self._held = None
            super().begin_reassignment()

    def assign_from_subscribed(self, assignment: Iterable[TopicPartition]) -> None:
        """Called with the partitions of the new generation."""
        before: Any = self._subscription.assignment
        super().assign_from_subscribed(assignment)
        after, membership = self._subscription.assignment, self._membership_now()
        self.has_continued = before is not None and continues(self._held, membership)
        if self.has_continued:
            for tp in before.tps & after.tps:
                state = after._tp_state[tp] = before._tp_state[tp]  # noqa: SLF001 - aiokafka has no other way to carry it over
                state._assignment = after  # noqa: SLF001
        if not self.is_of_framework:
            # The client would request these offsets one after the other, and fetch nothing from their broker meanwhile.
            for state in (state for state in after._tp_state.values() if not state.has_valid_position):  # noqa: SLF001
                state.fetch_committed().add_done_callback(partial(_begin, state))
        self._held = membership
        self.assignments = MappingProxyType(after._tp_state)  # noqa: SLF001


def _begin(state: TopicPartitionState, committed: Future[Any]) -> None:
    """Begin to fetch a new partition at its committed offset; without one, at the first retained record."""
    if committed.cancelled() or state.has_valid_position or state.awaiting_reset:
        return
    offset = committed.result().offset
    if offset < 0:
        state.await_reset(OffsetResetStrategy.EARLIEST)
    else:
        state.reset_to(offset)
