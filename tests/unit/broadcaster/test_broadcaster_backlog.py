"""Which queue a broadcast waits for."""

import pytest

from starling_broadcaster.backlog import Backlogs
from starling_broadcaster.pace import Queue
from starling_campaigns.channels import SENT_CHANNELS


@pytest.mark.parametrize("channel", sorted(SENT_CHANNELS))
def test_the_queue_of_a_channel_is_that_of_its_campaigns_and_not_of_a_feed(channel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, list[str]]] = []

    def queue(_self: Backlogs, group: str, topics: list[str]) -> Queue:
        asked.append((group, topics))
        return Queue(0, 0)

    monkeypatch.setattr(Backlogs, "_queue", queue)
    Backlogs("127.0.0.1:1").channel(channel)
    assert asked == [("starling-email", [f"delivery.requests.{channel}", f"delivery.bulk.{channel}"])]
