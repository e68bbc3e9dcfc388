"""Adapter: whether the coordinator of a consumer group refuses requests while the broker answers others."""

import threading
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition

from starling_common.kafka.clients import committed, consumer_config
from starling_common.telemetry.logs import log

_ANSWER_SECONDS: Final = 10.0
_CHECKS: Final = 6
"""Requests within the time after which the group has failed."""


class GroupAddress(NamedTuple):
    """A consumer group at its brokers. `topic`: one of its inputs."""

    brokers: str
    group: str
    topic: str


class GroupRequests:
    """Requests the committed offset of a group at an interval, in a thread. `problem` may be read by any thread.

    After an unclean end a broker may have failed to load the offsets of a group. It then answers every heartbeat, commit and
    request of that group with NOT_COORDINATOR, while it serves records. Each request is sent by a new client, so that the
    failure is not that of one client.
    """

    def __init__(
        self,
        address: GroupAddress,
        most_seconds: float,
        report: Callable[[float], None],
        *,
        clock: Callable[[], float] = time.monotonic,
        new_client: Callable[[dict[str, Any]], Consumer] = Consumer,
    ) -> None:
        """Open no connection; `start` does. `report` is called with the seconds since the group fails; 0 if it does not."""
        self._group = address.group
        self._config = consumer_config(address.brokers, address.group, log_level=3)
        self._topic = address.topic
        self._most_seconds = most_seconds
        self._report = report
        self._clock = clock
        self._new_client = new_client
        self._since: float | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"requests of {address.group}", daemon=True)
        self.problem: str | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread after its present request."""
        self._stopping.set()

    def check(self) -> None:
        """Send one request, and set `problem`."""
        began = self._clock()
        failure = self._failure()
        if failure is None:
            self._since = None
        elif self._since is None:
            self._since = began
        failing_seconds = 0.0 if self._since is None else self._clock() - self._since
        self._report(failing_seconds)
        if failing_seconds < self._most_seconds:
            self.problem = None
            return
        if self.problem is None:
            log(__name__).error("group_refused", group=self._group, seconds=round(failing_seconds), error=failure)
        self.problem = (
            f"the coordinator of the group {self._group} has refused requests for {failing_seconds:.0f} s ({failure}), and the "
            "broker answers others: restart this process, then the broker that coordinates the group"
        )

    def _failure(self) -> str | None:
        """Return the error of a request of the group; None if it is answered, or if the broker answers no request."""
        client = self._new_client(self._config)
        try:
            committed(client, [TopicPartition(self._topic, 0)], _ANSWER_SECONDS)
        except KafkaException as cause:
            try:
                client.list_topics(self._topic, timeout=_ANSWER_SECONDS)
            except KafkaException:
                return None
            return str(cause.args[0].str())
        finally:
            client.close()
        return None

    def _run(self) -> None:
        while not self._stopping.wait(self._most_seconds / _CHECKS):
            self.check()
