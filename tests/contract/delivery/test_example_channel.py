"""The channel in the author's guide is whole: it is taken from there and held to the contract."""

from pathlib import Path
from typing import Any

import pytest

from starling_delivery.channel import Channel, Message
from tests.contract.delivery.feed_contract import FeedContract
from tests.contract.delivery.guide import GUIDE, source_of_the_guide


def channel_of_the_guide() -> Any:
    namespace: dict[str, Any] = {}
    exec(compile(source_of_the_guide(), str(GUIDE), "exec"), namespace)  # noqa: S102 - our own documentation
    return namespace["FileChannel"]


class TestFileChannel(FeedContract):
    uses_addresses = False
    directory: Path

    @pytest.fixture(autouse=True)
    def _directory(self, tmp_path: Path) -> None:
        self.directory = tmp_path

    def open(self) -> Channel:
        channel: Channel = channel_of_the_guide()(self.directory)
        return channel

    def open_broken(self) -> Channel:
        self.directory /= "missing"
        return self.open()

    def message(self, delivery_id: str = "d1") -> Message:
        return Message("default", "ada", delivery_id, f"m-{delivery_id}", "crm", "https://example.com/hook", "{}", 1)

    def received(self) -> list[str]:
        return [line.split("\t")[0] for line in (self.directory / "default.crm").read_text().splitlines()]
