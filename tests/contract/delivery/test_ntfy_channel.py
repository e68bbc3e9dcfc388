"""The shortest channel: the address of a person is a URL that takes the text."""

from starling_delivery.channel import AT_MOST_ONCE, Again, Answer, Delivered, Message, Unknown
from starling_delivery.channels.http import HttpChannel, MaybeSent, NotSent
from tests.contract.delivery.channel_contract import HttpChannelContract


class NtfyChannel(HttpChannel):
    name, semantics = "ntfy", AT_MOST_ONCE

    async def send(self, message: Message) -> Answer:
        try:
            answer = await self.http.post(message.address, message.content["text"])
        except NotSent as error:
            return Again(str(error))
        except MaybeSent as error:
            return Unknown(str(error))
        return Delivered(answer.status) if answer.ok else Again("refused", answer.status, answer.retry_after)


class TestNtfy(HttpChannelContract):
    channel = NtfyChannel

    def message(self, delivery_id: str = "d1x", text: str = "Hello") -> Message:
        return self.rendered(delivery_id, {"text": text}, address=f"{self.endpoint.url}/ada")
