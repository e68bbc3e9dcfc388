"""What every channel must do. Subclass, provide `channel` and `world`, inherit the tests."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable

from starling_delivery.channel import Again, Answer, Channel, Delivered, Gone, Impossible, Message


class ChannelContract(ABC):
    """`run` hands the channel to an async function, in an event loop of its own, and closes it afterwards."""

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
