"""What every channel of feeds must do. Subclass, provide `channel` and `world`, inherit the tests."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import pytest

from starling_delivery.channel import Again, Answer, Channel, Delivered, Gone, Impossible, Message
from starling_delivery.policy import Step
from tests.unit.delivery.making import Recorded, definition, dispatcher, request, send_all, targets

IMPOSSIBLE_ADDRESSES = (
    "", "no address", "https://a..b/", f"https://{'x' * 64}.example/", "https://☃.example/", "http://[::1", "https://h:99999/",
    "https://h:0/", "https://h:port/", "https://h/\x00", "https:///x", "\ud800",
)  # fmt: skip
"""What a stored target may hold although the API refuses it today."""


class FeedContract(ABC):
    """`run` hands the channel to an async function, in an event loop of its own, and closes it afterwards."""

    uses_addresses = True
    """Whether a message is sent to its address; False for a channel with a fixed destination."""

    @abstractmethod
    def open(self) -> Channel:
        """A channel whose other side takes everything."""

    @abstractmethod
    def open_broken(self) -> Channel:
        """A channel whose other side cannot be reached."""

    @abstractmethod
    def message(self, delivery_id: str = "d1") -> Message:
        """A message that can be sent."""

    @abstractmethod
    def received(self) -> list[str]:
        """The idempotency keys of what arrived at the other side, in order."""

    def send(self, opened: Callable[[], Channel], *messages: Message) -> list[Answer]:
        async def sending() -> list[Answer]:
            channel = opened()
            try:
                return list(await asyncio.gather(*(channel.send(message) for message in messages)))
            finally:
                await channel.close()

        return asyncio.run(sending())

    def test_it_has_a_name(self) -> None:
        async def name() -> str:
            channel = self.open()
            await channel.close()
            return channel.name

        assert asyncio.run(name()).isidentifier()

    def test_what_was_delivered_arrived(self) -> None:
        message = self.message()
        [answer] = self.send(self.open, message)
        assert isinstance(answer, Delivered)
        assert message.message_id in self.received()

    def test_a_repeat_carries_the_same_idempotency_key(self) -> None:
        message = self.message()
        self.send(self.open, message)
        self.send(self.open, message)
        assert set(self.received()) == {message.message_id}

    def test_several_at_once_all_arrive(self) -> None:
        messages = [self.message(f"d{n}") for n in range(10)]
        answers = self.send(self.open, *messages)
        assert all(isinstance(answer, Delivered) for answer in answers)
        assert sorted(self.received()) == sorted(message.message_id for message in messages)

    def test_the_other_side_being_away_is_an_answer_and_not_an_exception(self) -> None:
        [answer] = self.send(self.open_broken, self.message())
        assert isinstance(answer, Again | Impossible | Gone)
        assert answer.why

    def through_the_kit(self, **bad: Any) -> tuple[Step, Step]:
        """What becomes of a message with these fields and of a good one beside it, as the process sends them."""
        good = self.message()
        requests = [
            request(user="bob", delivery_id="bad", target_key=good.target_key, **({"address": good.address} | bad)),
            request(user="ada", delivery_id=good.delivery_id, target_key=good.target_key, address=good.address),
        ]
        published = Recorded([])

        async def sending() -> None:
            channel = self.open()
            try:
                await send_all(dispatcher(channel, targets(definition(good.target_key)), published), requests)
            finally:
                await channel.close()

        asyncio.run(sending())
        steps = dict(published.steps)
        return steps["bad"], steps[good.delivery_id]

    @pytest.mark.parametrize("address", IMPOSSIBLE_ADDRESSES)
    def test_an_impossible_address_ends_one_message_and_no_other(self, address: str) -> None:
        bad, good = self.through_the_kit(address=address)
        assert (bad.outcome, bool(bad.dead)) == (("FAILED", True) if self.uses_addresses else ("DELIVERED", False))
        assert good.outcome == "DELIVERED"

    def test_an_exception_ends_one_message_and_no_other(self) -> None:
        """No channel can write down half of a surrogate pair."""
        bad, good = self.through_the_kit(payload='{"data":{"event_id":"m-bad","name":"\ud800"}}')
        assert bad.outcome == "FAILED"
        assert "UnicodeEncodeError" in (bad.dead or "")
        assert good.outcome == "DELIVERED"
