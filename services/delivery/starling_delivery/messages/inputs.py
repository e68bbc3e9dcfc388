"""Core: the requests of messages to people, each with the target that its campaign has now."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from confluent_kafka import Message

from starling_common.telemetry.logs import log
from starling_common.wire import DecodeError, Record
from starling_delivery.agents import Due, RetryInput
from starling_delivery.messages.definitions import Definitions
from starling_delivery.policy import Request


@dataclass(frozen=True)
class RequestInput:
    """The requests of the messenger for the channels of this process. `bulk_topics`: those with the requests of broadcasts."""

    topics: Sequence[str]
    decode: Callable[[bytes], Record]
    channels: Collection[str]
    definitions: Definitions
    bulk_topics: Collection[str] = ()

    def requests(self, message: Message) -> list[Due]:
        """Return the request of a record. It is due at its `not_before`, by the wall clock."""
        request = self.decode(message.value() or b"")
        if request["channel"] not in self.channels:
            return []
        due = Due(request, request["not_before"], None, bulk=message.topic() in self.bulk_topics)
        return [to_target(due, self.definitions)]


@dataclass(frozen=True)
class MessageRetryInput:
    """Messages to send again, and postponed ones."""

    retries: RetryInput
    definitions: Definitions

    @property
    def topics(self) -> Sequence[str]:
        """The tiers, and the topic for replayed dead letters."""
        return self.retries.topics

    def requests(self, message: Message) -> list[Due]:
        """Return the request of a record, if it is of this process. One that cannot be decoded is of no channel.

        The webhook process reads the same topics and writes its dead letter; a second letter would be replayed too.
        """
        try:
            found = self.retries.requests(message)
        except DecodeError as error:
            log(__name__).warning(
                "retry_left_to_the_webhook_process", topic=message.topic(), offset=message.offset(), error=str(error)
            )
            return []
        return [to_target(due._replace(bulk=self._is_bulk(due.request)), self.definitions) for due in found]

    def _is_bulk(self, request: Request) -> bool:
        known = self.definitions.campaign(request["workspace"], request["campaign"] or "")
        return known is not None and known.is_broadcast


def to_target(due: Due, definitions: Definitions) -> Due:
    """Return the request with the target of its campaign, whose lane it enters. A campaign that is not known changes nothing."""
    request = due.request
    known = definitions.campaign(request["workspace"], request["campaign"] or "")
    if known is None or known.target == request["target_key"]:
        return due
    return due._replace(request={**request, "target_key": known.target})
