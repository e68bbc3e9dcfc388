"""What every channel of campaigns must do. Subclass `ChannelContract`, or `HttpChannelContract`, and inherit the tests.

The tests send through the parts of the kit that the process has, without a broker: `Storage` keeps what transactions would.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import pytest
from prometheus_client import CollectorRegistry

from starling_campaigns import Target
from starling_common.http.outbound.sessions import GuardedSession
from starling_common.outcome import Refused
from starling_common.telemetry.metrics import Metrics
from starling_delivery.channel import (
    AT_MOST_ONCE,
    Again,
    Answer,
    Bounced,
    Delivered,
    Gone,
    Impossible,
    Message,
    MessageChannel,
    Unknown,
)
from starling_delivery.channels.http import BoundedChannel, Http1Client, HttpChannel
from starling_delivery.failpoints import FAILPOINTS
from starling_delivery.item import Item
from starling_delivery.messages.definitions import Definitions, KnownTarget
from starling_delivery.policy import Request, Schedule, Step
from starling_delivery.sending.circuit import CircuitRule, Circuits
from starling_delivery.sending.dispatch import Dispatcher, Traffic
from starling_delivery.sending.lanes import Lanes
from starling_delivery.sending.semantics import semantics_of
from tests.contract.delivery.endpoint import Endpoint, answering
from tests.contract.delivery.feed_contract import IMPOSSIBLE_ADDRESSES
from tests.unit.delivery.making import send_all
from tests.unit.delivery.messages import mail_request

HOSTILE_TEXTS: Final = (
    "", "\x00", "\r\n.\r\nQUIT\r\n", "a\r\nBcc: eve@example.com", "\u202egpj.exe", "\ufeff", "\ufffe", "🐦" * 500, "x" * 200_000,
    '"},{"', "</script>", "&To=+15550001111", "%0d%0a", "{{ 7 * 7 }}", "\U0001d54f" * 70, "\u2028",
)  # fmt: skip
"""Parts of what a template may render: traits are whatever a client sends."""

_SLOTS: Final = 2
_DEADLINE_SECONDS: Final = 10.0
_SHORT_SECONDS: Final = 0.3


class Killed(BaseException):
    """The process ends here."""


class Storage:
    """What a broker keeps: the stored claims and outcomes. After a kill nothing more is stored."""

    def __init__(self) -> None:
        self.claims: set[str] = set()
        self.steps: dict[str, Step] = {}
        self.is_dead = False
        self._passed = 0

    async def claim(self, item: Item) -> bool:
        await asyncio.sleep(0)
        if not self.is_dead:
            self.claims.add(item.request["delivery_id"])
        return not self.is_dead

    def record(self, item: Item, step: Step, stored: Callable[[], None]) -> None:
        if not self.is_dead:
            self.steps[item.request["delivery_id"]] = step
            stored()

    def refuse(self, item: Item, why: Refused, stored: Callable[[], None]) -> None:
        self.record(item, Step("FAILED", str(why.code), dead=why.code), stored)

    def check(self) -> None:
        """Nothing is outstanding."""

    def killing(self, failpoint: str, count: int) -> Callable[[str], None]:
        """Return a function that ends the process at its `count`th call for a failpoint."""

        def passed(name: str) -> None:
            if name == failpoint:
                self._passed += 1
            if self._passed >= count:
                self.is_dead = True
                raise Killed

        return passed


class ChannelContract(ABC):
    """The other side of a channel is a server of the test. Each test has one of its own."""

    uses_addresses = True
    """Whether a message is sent to its address; False for a channel whose destination is that of the target."""

    @abstractmethod
    def open(self, passed: Callable[[str], None] = lambda _: None) -> MessageChannel:
        """A channel whose other side takes everything. `passed`: to be called at the failpoints in_send and after_send."""

    @abstractmethod
    def open_broken(self) -> MessageChannel:
        """A channel whose other side cannot be reached."""

    @abstractmethod
    def open_losing(self) -> MessageChannel:
        """A channel whose other side takes a message, and ends the connection instead of an answer."""

    @abstractmethod
    def open_silent(self) -> MessageChannel:
        """A channel whose other side takes a message and never answers."""

    @abstractmethod
    def message(self, delivery_id: str = "d1x", text: str = "Hello") -> Message:
        """A rendered message that can be sent, with the text in each part."""

    @abstractmethod
    def received(self) -> list[str]:
        """What arrived at the other side, each message whole, in order."""

    def arrivals(self, delivery_ids: Sequence[str]) -> Counter[str]:
        """How often each message arrived, by its id in the text."""
        return Counter(one for one in delivery_ids for whole in self.received() if one in whole)

    def send(self, opened: Callable[[], MessageChannel], *messages: Message, seconds: float = _DEADLINE_SECONDS) -> list[Answer]:
        """The answers to messages that are sent at once, each within a deadline."""

        async def sending() -> list[Answer]:
            channel = BoundedChannel(opened(), seconds)
            try:
                return [await one for one in [asyncio.create_task(channel.send(message)) for message in messages]]
            finally:
                await channel.close()

        return asyncio.run(sending())

    def send_through_kit(
        self, messages: Sequence[Message], storage: Storage, passed: Callable[[str], None] = lambda _: None
    ) -> None:
        """Send messages as the process does, until each has an outcome or the process is killed."""
        known = {message.delivery_id: message for message in messages}

        def look(request: Request, _now_ms: int) -> Message:
            return known[request["delivery_id"]]

        async def sending() -> None:
            channel = BoundedChannel(self.open(passed), _DEADLINE_SECONDS)
            semantics = semantics_of(channel.semantics, look, storage, passed)
            traffic = Traffic(Lanes(_SLOTS, 64_000_000, 1000), Circuits(CircuitRule(1000, 30.0)), semantics)
            sender = Dispatcher(channel, Definitions(), Schedule((1.0,), 3600.0), traffic, storage, Metrics(CollectorRegistry()))
            requests = [
                mail_request(f"user of {one}", delivery_id=one, channel=channel.name, target_key="main", address=message.address)
                for one, message in known.items()
            ]
            try:
                await send_all(sender, requests)
            finally:
                with suppress(Exception):  # a killed process closes nothing
                    await channel.close()

        asyncio.run(sending())

    @property
    def is_at_most_once(self) -> bool:
        async def semantics() -> bool:
            channel = self.open()
            await channel.close()
            return channel.semantics is AT_MOST_ONCE

        return asyncio.run(semantics())

    def test_what_was_delivered_arrived(self) -> None:
        [answer] = self.send(self.open, self.message("whole7x", "Hello whole7x"))
        assert isinstance(answer, Delivered)
        assert self.arrivals(["whole7x"]) == {"whole7x": 1}

    def test_several_at_once_all_arrive(self) -> None:
        ids = [f"several{n}x" for n in range(10)]
        answers = self.send(self.open, *(self.message(one, f"Hello {one}") for one in ids))
        assert all(isinstance(answer, Delivered) for answer in answers)
        assert self.arrivals(ids) == dict.fromkeys(ids, 1)

    def test_what_was_surely_not_taken_is_tried_again(self) -> None:
        [answer] = self.send(self.open_broken, self.message())
        assert isinstance(answer, Again)
        assert answer.why

    @pytest.mark.parametrize("side", ["losing", "silent"])
    def test_what_may_have_been_taken_is_unknown(self, side: str) -> None:
        opened = self.open_losing if side == "losing" else self.open_silent
        [answer] = self.send(opened, self.message(), seconds=_SHORT_SECONDS if side == "silent" else _DEADLINE_SECONDS)
        assert isinstance(answer, Unknown if self.is_at_most_once else Unknown | Again)
        assert answer.why
        assert len(self.received()) <= 1

    @pytest.mark.parametrize("failpoint", FAILPOINTS)
    def test_after_a_kill_messages_arrive_as_often_as_the_semantics_allow(self, failpoint: str) -> None:
        is_at_most_once, ids, storage = self.is_at_most_once, [f"killed{n}x" for n in range(6)], Storage()
        if failpoint == "after_sending" and not is_at_most_once:
            return  # no SENDING is stored
        messages = [self.message(one, f"Hello {one}") for one in ids]
        with pytest.raises(BaseExceptionGroup) as ended:
            self.send_through_kit(messages, storage, storage.killing(failpoint, 3))
        assert ended.value.subgroup(Killed) is not None

        storage.is_dead = False
        known = storage.claims | storage.steps.keys()
        left = [message for message in messages if message.delivery_id not in known]
        assert left
        self.send_through_kit(left, storage)

        arrivals, unknown = self.arrivals(ids), [one for one in ids if one not in storage.steps]
        if is_at_most_once:
            assert max(arrivals.values()) == 1
            assert len(unknown) <= _SLOTS
            assert {storage.steps[one].outcome for one in storage.steps} == {"SENT"}
        else:
            assert set(arrivals) == set(ids)
            assert {one: step.outcome for one, step in storage.steps.items()} == dict.fromkeys(ids, "DELIVERED")

    def test_hostile_content_ends_one_message_and_no_other(self) -> None:
        hostile = [self.message(f"hostile{n}x", f"hostile{n}x {text}") for n, text in enumerate(HOSTILE_TEXTS)]
        storage = Storage()
        self.send_through_kit([*hostile, self.message("good7x", "Hello good7x")], storage)
        outcomes = {one: step.outcome for one, step in storage.steps.items()}
        assert outcomes["good7x"] in {"SENT", "DELIVERED"}
        assert len(outcomes) == len(hostile) + 1
        # Ended for a reason that names the message, and not by an exception.
        assert {step.outcome for step in storage.steps.values()} <= {"SENT", "DELIVERED", "BOUNCED", "FAILED"}
        assert not [step for step in storage.steps.values() if step.detail == "unknown" or "Error" in (step.detail or "")]
        assert max(self.arrivals(list(outcomes)).values()) == 1
        assert len(self.received()) <= len(outcomes)

    def test_an_impossible_address_is_an_answer_and_not_an_exception(self) -> None:
        messages = [replace(self.message(f"address{n}x"), address=address) for n, address in enumerate(IMPOSSIBLE_ADDRESSES)]
        answers = self.send(self.open, *messages)
        if self.uses_addresses:
            assert all(isinstance(answer, Impossible | Bounced) for answer in answers), answers
            assert self.received() == []
        else:
            assert all(isinstance(answer, Delivered) for answer in answers), answers


class HttpChannelContract(ChannelContract):
    """The contract of a channel over HTTP. A subclass has `channel` and `message`, and `target` if the channel has settings."""

    channel: type[HttpChannel]
    endpoint: Endpoint

    @pytest.fixture(autouse=True)
    def _endpoint(self) -> Iterator[None]:
        self.endpoint = Endpoint()
        self.endpoint.respond = self.taken()
        yield
        self.endpoint.close()

    def target(self) -> Mapping[str, Any]:
        """The settings of the target, whose server is `self.endpoint.url`."""
        return {}

    def taken(self) -> Callable[[Any], None]:
        """The answer with which the other side takes a message."""
        return answering(200)

    def rendered(self, delivery_id: str, content: Mapping[str, str], address: str = "") -> Message:
        """A message with this content."""
        return Message(
            "default", "ada", delivery_id, delivery_id, "main", address, "", 1, content, purpose="marketing", campaign="welcome"
        )

    def open(self, passed: Callable[[str], None] = lambda _: None, *, allow_private: bool = True) -> MessageChannel:
        session = GuardedSession(lookup_seconds=5, connections=16, allow_private=allow_private)
        known = Definitions()
        target = Target("main", "main", self.channel.name, dict(self.target()))
        known.targets["default", "main"] = KnownTarget("default", "main", 1, target)
        return self.channel(Http1Client(session, allow_private=allow_private, passed=passed), known)

    def open_broken(self) -> MessageChannel:
        self.endpoint.close()
        return self.open()

    def open_losing(self) -> MessageChannel:
        self.endpoint.respond = self.endpoint.lose
        return self.open()

    def open_silent(self) -> MessageChannel:
        self.endpoint.respond = self.endpoint.hang
        return self.open()

    def received(self) -> list[str]:
        return [request.body.decode() for request in self.endpoint.requests]

    def answer_to(self, respond: Callable[[Any], None], **more: Any) -> Answer:
        """The answer of the channel to one response, after one request."""
        self.endpoint.respond = respond
        [answer] = self.send(self.open, self.message(), **more)
        assert len(self.endpoint.requests) == 1
        return answer

    def test_429_is_tried_again_after_the_requested_delay(self) -> None:
        answer = self.answer_to(answering(429, Retry_After="7"))
        assert isinstance(answer, Again)
        assert (answer.status_code, answer.retry_after_seconds) == (429, 7.0)

    @pytest.mark.parametrize("status", [400, 401, 403, 404, 408, 409, 410, 413, 422, 500, 502, 503, 504])
    def test_a_refusal_is_an_answer_and_no_delivery(self, status: int) -> None:
        answer = self.answer_to(answering(status, b"<html>not json</html>"))
        possible = Again | Impossible | Gone | Bounced
        assert isinstance(answer, possible | Unknown if status >= 500 else possible)
        assert answer.why

    @pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
    def test_a_redirect_is_never_followed(self, status: int) -> None:
        answer = self.answer_to(answering(status, Location=f"{self.endpoint.url}/elsewhere"))
        assert not isinstance(answer, Delivered)

    def test_a_gigabyte_is_not_read(self) -> None:
        assert isinstance(self.answer_to(self.endpoint.flood), Delivered)
        assert self.endpoint.written_bytes < 2**26

    def test_a_private_address_is_refused_before_anything_is_sent(self) -> None:
        [answer] = self.send(lambda: self.open(allow_private=False), self.message())
        assert isinstance(answer, Impossible)
        assert self.endpoint.requests == []
