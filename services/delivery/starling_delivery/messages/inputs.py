"""Core: the requests of messages to people, each with the target that its campaign has now."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from confluent_kafka import Message

from starling_common.telemetry.logs import log
from starling_common.wire import DecodeError, Record
from starling_delivery.agents import Due, RetryInput
from starling_delivery.messages.definitions import Definitions


@dataclass(frozen=True)
class RequestInput:
    """The requests of the messenger for the channels of this process."""

    topics: Sequence[str]
    decode: Callable[[bytes], Record]
    channels: Collection[str]
    definitions: Definitions

    def requests(self, message: Message) -> list[Due]:
        """Return the request of a record. It is due at its `not_before`, by the wall clock."""
        request = self.decode(message.value() or b"")
        if request["channel"] not in self.channels:
            return []
        return [to_target(Due(request, request["not_before"], None), self.definitions)]


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
        return [to_target(due, self.definitions) for due in found]


def to_target(due: Due, definitions: Definitions) -> Due:
    """Return the request with the target of its campaign, whose lane it enters. A campaign that is not known changes nothing."""
    known = definitions.campaign(due.request["workspace"], due.request["campaign"] or "")
    return due if known is None else due._replace(request={**due.request, "target_key": known.target})
