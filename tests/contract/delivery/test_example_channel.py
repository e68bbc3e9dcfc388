"""The channel in the author's guide is whole: it is taken from there and held to the contract."""

import re
from pathlib import Path
from typing import Any

import pytest

from starling_delivery.channel import Channel, Impossible, Message
from tests.contract.delivery.channel_contract import ChannelContract

GUIDE = Path(__file__).parents[3] / "docs/how-to/channel-author.md"


def channel_of_the_guide() -> Any:
    [source] = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    namespace: dict[str, Any] = {}
    exec(compile(source, str(GUIDE), "exec"), namespace)  # noqa: S102 - our own documentation
    return namespace["FileChannel"]


class TestFileChannel(ChannelContract):
    target: Path

    @pytest.fixture(autouse=True)
    def _target(self, tmp_path: Path) -> None:
        self.target = tmp_path / "messages"

    def open(self) -> Channel:
        channel: Channel = channel_of_the_guide()()
        return channel

    def open_broken(self) -> Channel:
        self.target.mkdir()
        return self.open()

    def message(self, delivery_id: str = "d1") -> Message:
        return Message("default", "ada", delivery_id, f"m-{delivery_id}", "file", f"file://{self.target}", "{}", 1)

    def received(self) -> list[str]:
        return [line.split("\t")[0] for line in self.target.read_text().splitlines()]

    def test_another_kind_of_address_is_refused(self) -> None:
        message = Message("default", "ada", "d", "m", "file", "https://example.com", "{}", 1)
        assert self.send(self.open, message) == [Impossible("https://example.com is no file:// address")]
