"""Timestamps of a sender outside of any reason, from the ingest API to the segments: they concern their own user only."""

import json
from itertools import count
from typing import Any

import pytest

from starling_common.kafka.topics import BEHAVIOUR, OUTCOMES
from starling_common.outcome import Done
from starling_common.settings import Clock
from starling_common.values import record_key
from starling_ingest.requests.accept import accept_single
from starling_items.profile import Profile
from starling_items.work import StageDependencies
from starling_normalizer.agents import Normalizer, NormalizerDependencies, normalizer_service
from starling_normalizer.testing import key_of, local_codecs, received
from starling_stream.testing import Fed, MemoryTask
from tests.unit.segmenter.segmenting import CODECS, FeedEntry, MemorySegmenter

RECEIVED = local_codecs()
T0_MS = 1_767_225_600_000
MINUTE_MS, DAY_MS = 60_000, 24 * 3_600_000
WINDOWS = {
    "recent": {"event": "Order", "within": "30d"},
    "thrice": {"event": "Order", "measure": "count", "op": "gte", "value": 3, "within": "7d"},
    "ever": {"event": "Order"},
}

EXTREME = {
    "year 9999": ({"timestamp": "9999-12-31T23:59:59.999Z"}, False),
    "year 9999, imported": ({"timestamp": "9999-12-31T23:59:59.999Z"}, True),
    "1970, imported": ({"timestamp": "1970-01-01T00:00:00Z"}, True),
    "before 1970": ({"timestamp": "1969-12-31T23:59:59Z"}, False),
    "before 1970, imported": ({"timestamp": "0001-01-01T00:00:00Z"}, True),
    "sent in year 9999": ({"timestamp": "2026-01-01T00:00:00Z", "sentAt": "9999-12-31T23:59:59Z"}, False),
    "sent in 1970": ({"timestamp": "2026-01-01T00:00:00Z", "sentAt": "1970-01-01T00:00:00Z"}, False),
    "both in year 9999": ({"timestamp": "9999-12-31T23:59:59Z", "sentAt": "9999-12-31T23:59:59Z"}, False),
}


class Chain:
    """The ingest API, the normalizer and the segmenter under the wall clock."""

    def __init__(self) -> None:
        stage_dependencies = StageDependencies(Clock.WALL, lambda _workspace, _product: None)
        dependencies = NormalizerDependencies(lambda _topic, _outcome: None, lambda: T0_MS, lambda: None)
        normalizer = Normalizer(RECEIVED, stage_dependencies, dependencies)
        self.normalizer: MemoryTask[Profile] = MemoryTask(normalizer_service(normalizer, Clock.WALL))
        self.segmenter = MemorySegmenter(Clock.WALL)
        for key, where in WINDOWS.items():
            self.segmenter.define(key, where)
        assert not self.segmenter.refused
        self.outcomes: list[str] = []
        self._numbers = count(1)

    def send(self, user: str, received_ms: int, *, appended_ms: int | None = None, imported: bool = False, **fields: Any) -> None:
        """One track call; the broker appends it a millisecond after its receipt, unless `appended_ms` is given."""
        body = json.dumps({"userId": user, "event": "Order", "messageId": f"m-{next(self._numbers)}", **fields}).encode()
        parsed = accept_single(body, "track")
        assert isinstance(parsed, Done)
        for item in parsed.value.items:
            record = received(
                item.kind, item.item.decode(), received_at=received_ms * 1000, message_id=item.message_id, user_id=item.user_id,
                sent_at=item.sent_at, imported=imported,
            )  # fmt: skip
            timestamp_ms = received_ms + 1 if appended_ms is None else appended_ms
            value = RECEIVED["ingest.track"].encode(record)
            self.normalizer.feed_all([Fed("ingest.track", key_of(record), value, timestamp_ms=timestamp_ms)])
        for output in self.normalizer.take_outputs():
            decoded = RECEIVED[output.topic].decode(output.value)
            if output.topic == OUTCOMES:
                self.outcomes.append(decoded["outcome"])
            else:
                self.segmenter.task.feed(BEHAVIOUR, output.key, CODECS[BEHAVIOUR].encode(decoded))

    def advance(self, instant_ms: int) -> None:
        """Move both stages to an instant, as the wall clock does."""
        self.normalizer.advance(instant_ms)
        self.segmenter.task.advance(instant_ms)


def story(extreme: tuple[dict[str, Any], bool] | None) -> tuple[list[FeedEntry], Chain]:
    chain = Chain()
    chain.send("ada", T0_MS)
    if extreme is not None:
        fields, imported = extreme
        chain.send("eve", T0_MS + MINUTE_MS, imported=imported, **fields)
    chain.send("ada", T0_MS + 2 * MINUTE_MS)
    chain.advance(T0_MS + 3 * MINUTE_MS)
    assert max(chain.normalizer.stream_time_ms, chain.segmenter.task.stream_time_ms) == T0_MS + 3 * MINUTE_MS
    chain.segmenter.restart()
    for user in ("eve", "ada"):
        chain.send(user, T0_MS + DAY_MS)
    chain.advance(T0_MS + 40 * DAY_MS)
    return chain.segmenter.changes(), chain


@pytest.mark.parametrize("name", EXTREME)
def test_an_extreme_timestamp_concerns_its_own_user_only(name: str) -> None:
    changes, chain = story(EXTREME[name])
    undisturbed, _ = story(None)
    of_ada = [change for change in changes if change.user == "ada"]
    assert of_ada == [change for change in undisturbed if change.user == "ada"]
    assert FeedEntry("ada", "recent", "EXITED", 2, T0_MS + 31 * DAY_MS, "TIMER") in of_ada
    # Eve's own state is intact: her order of the next day counts, and its window ends in time.
    of_eve = [change for change in changes if change.user == "eve" and change.segment == "recent"]
    assert of_eve[-1].effective_at == T0_MS + 31 * DAY_MS
    assert of_eve[-1].status == "EXITED"
    assert record_key("default", "eve") in chain.segmenter.user_states()
    assert "eve" in chain.segmenter.members("ever")


def test_an_edge_whose_clock_is_ahead_does_not_move_stream_time() -> None:
    chain = Chain()
    chain.send("ada", T0_MS)
    for ahead_ms in (5 * MINUTE_MS, 5 * MINUTE_MS + 1, 365 * DAY_MS):
        chain.send("eve", T0_MS + MINUTE_MS + ahead_ms, appended_ms=T0_MS + MINUTE_MS)
    [first, second] = chain.normalizer.refusals
    assert {first.code, second.code} == {"clock_ahead"}
    assert second.message.startswith("received_at: is 31536000 s after the append at the broker")
    assert chain.outcomes == ["ACCEPTED", "ACCEPTED"]
    assert chain.normalizer.stream_time_ms == T0_MS + 6 * MINUTE_MS
    assert [(change.user, change.status) for change in chain.segmenter.changes() if change.segment == "recent"] == [
        ("ada", "ENTERED"),
        ("eve", "ENTERED"),
    ]
