"""Adapter: the suppressed addresses, as the channels and the messenger know them. Thread-safe."""

import threading
from collections.abc import Callable
from functools import partial
from typing import Final

from starling_common.kafka.followed_topic import FollowedTopic
from starling_common.kafka.topics import SUPPRESSIONS
from starling_common.records.suppressions import SuppressedAddresses, fold_suppression
from starling_common.wire import Codec, Registry
from starling_messages.person.unit import SuppressionOf

_FIRST_READ_SECONDS: Final = 10.0

Suppressed = Callable[[str], SuppressionOf]
"""Workspace -> its suppressions. Raises: BrokerUnavailable while the topic has not been read."""


class KnownSuppressions:
    """Follows `suppressions` from the first use on: an API that decides about no message holds no addresses."""

    def __init__(self, brokers: str, registry: Registry) -> None:
        """Open no connection; the first use does."""
        self._registry = registry
        self._followed = FollowedTopic[SuppressedAddresses](
            (brokers, SUPPRESSIONS), self._codec, SuppressedAddresses, fold_suppression
        )
        self._lock = threading.Lock()
        self._is_started = False

    def start(self) -> None:
        """Do nothing: the first use starts to read."""

    def stop(self) -> None:
        """Stop reading."""
        with self._lock:
            self._is_started = True
            self._followed.stop()

    def of(self, workspace: str) -> SuppressionOf:
        """Return the suppressions of a workspace, at most about a second old. They are looked up in memory.

        Raises: BrokerUnavailable if the topic cannot be read for the first time within 10 seconds. A repetition goes on.
        """
        with self._lock:
            if not self._is_started:
                self._is_started = True
                self._followed.start()
        if not self._followed.is_read():
            self._followed.refresh(_FIRST_READ_SECONDS)
        return partial(self._followed.value().kind, workspace)

    def _codec(self) -> Codec:
        return self._registry.codec(SUPPRESSIONS, "AddressSuppressed")
