"""Which targets of audience sync `starling settle` waits for."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from starling_cli.settle.audiences import unsent
from starling_cli.settle.broker import Offsetter
from starling_cli.settle.progress import Offsets, Partition
from starling_common.kafka.topics import MEMBERSHIP, MEMBERSHIP_STATE

CRM = {"key": "crm", "channel": "audience", "status": "active"}


@dataclass
class Broker:
    """Topics with one partition that ends at 10. `committed`: of the only group; `done`: the metadata of the state."""

    committed_at: int = 10
    done: str = '{"mapping": "m", "done": true}'
    asked: set[str] = field(default_factory=set)

    def partitions(self, topics: Iterable[str]) -> list[Partition]:
        return [(topic, 0) for topic in topics]

    def starts(self, partitions: Iterable[Partition]) -> Offsets:
        return dict.fromkeys(partitions, 0)

    def ends(self, partitions: Iterable[Partition]) -> Offsets:
        return dict.fromkeys(partitions, 10)

    def committed(self, group: str, partitions: Iterable[Partition]) -> Offsets:
        self.asked.add(group)
        return {place: self.committed_at if place[0] == MEMBERSHIP else 10 for place in partitions}

    def metadata(self, group: str, partitions: Iterable[Partition]) -> Mapping[Partition, str]:
        return {place: self.done for place in partitions if self.done and place[0] == MEMBERSHIP_STATE}

    def holding_records(self, positions: Offsets) -> set[Partition]:
        return set(positions)


def found(broker: Broker, *targets: Mapping[str, Any]) -> list[str]:
    return unsent(cast("Offsetter", broker), "default", targets)


def test_a_target_that_has_sent_everything_is_not_waited_for() -> None:
    broker = Broker()
    assert found(broker, CRM) == []
    assert broker.asked == {"starling-audience-default.crm"}


def test_a_target_lags_by_the_records_of_the_feed_that_it_has_not_read() -> None:
    assert found(Broker(committed_at=7), CRM) == ["target crm lags by 3 records"]
    assert found(Broker(committed_at=9), CRM) == ["target crm lags by 1 record"]


def test_a_target_without_its_first_sync_is_waited_for() -> None:
    for metadata in ("", "no json", "[]", '{"mapping": "m", "done": false}'):
        assert found(Broker(done=metadata), CRM) == ["target crm has not completed its first sync"]


def test_disabled_targets_and_those_of_other_channels_are_left_out() -> None:
    broker = Broker(committed_at=0)
    assert found(broker, {**CRM, "status": "disabled"}, {"key": "mail", "channel": "email", "status": "active"}) == []
    assert broker.asked == set()
