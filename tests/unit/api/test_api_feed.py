"""The feed as pages: every change once, each user's in sequence, whatever else is in the topic."""

import asyncio
import itertools
from typing import Any

import pytest

from starling_api.feed import changes as feed_module
from starling_api.feed.changes import FeedRequest, Page, Span, cursor_of, follow, read_page, starting
from starling_api.feed.streams import EventStream, Streams
from starling_api.http.errors import BadRequest, CursorExpired, TooManyStreams
from starling_api.http.pagination import make_cursor
from starling_common.kafka.clients import BrokerUnavailable
from tests.unit.api.memory import MemoryFeed

SPANS = [Span(5, 10), Span(0, 3)]


def change(user: str, segment: str = "vip", sequence: int = 1) -> dict[str, Any]:
    return {
        "user_id": user, "segment_key": segment, "sequence": sequence, "effective_at": 1_000, "decided_at": 2_000,
        "received_at": 3_000_000, "traits": '{"plan": "pro"}',
    }  # fmt: skip


def asked(after: str | None = None, *segments: str, limit: int = 2) -> FeedRequest:
    return FeedRequest("acme", frozenset(segments), after, limit)


def filled() -> MemoryFeed:
    feed = MemoryFeed()
    for sequence in range(1, 6):
        feed.partitions[0] += [("acme", change("ada", sequence=sequence)), ("other", change("eve")), None]
        feed.partitions[1].append(("acme", change("bob", "new", sequence)))
    return feed


def walk(feed: MemoryFeed, *segments: str, limit: int) -> list[Page]:
    pages = [read_page(feed, asked(None, *segments, limit=limit))]
    while not pages[-1].is_last:
        pages.append(read_page(feed, asked(cursor_of(pages[-1].position), *segments, limit=limit)))
    return pages


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_pages_hold_every_change_once_and_in_sequence(limit: int) -> None:
    pages = walk(filled(), limit=limit)
    seen = [(one["user_id"], one["sequence"]) for page in pages for one in page.items]
    assert all(len(page.items) <= limit for page in pages)
    assert sorted(seen) == [(user, sequence) for user in ("ada", "bob") for sequence in range(1, 6)]
    for user in ("ada", "bob"):
        assert [sequence for one, sequence in seen if one == user] == [1, 2, 3, 4, 5]


def test_a_page_has_the_records_of_a_webhook() -> None:
    (page,) = walk(filled(), limit=100)
    assert page.items[0]["effective_at"] == "1970-01-01T00:00:01.000Z"
    assert page.items[0]["received_at"] == "1970-01-01T00:00:03.000Z"
    assert page.items[0]["traits"] == {"plan": "pro"}


def test_a_filter_of_segments_advances_the_cursor() -> None:
    feed = filled()
    (page,) = walk(feed, "new", "none", limit=100)
    assert {one["segment_key"] for one in page.items} == {"new"}
    assert page.position == (15, 5)
    feed.partitions[0].append(("acme", change("ada", "new")))
    (later,) = read_page(feed, asked(cursor_of(page.position), "new")).items
    assert later["user_id"] == "ada"


@pytest.mark.parametrize("limit", [1, 7, 1000])
def test_a_page_scans_a_bounded_number_of_records(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    monkeypatch.setattr(feed_module, "MAX_SCANNED", 10)
    feed = MemoryFeed()
    feed.partitions[0].extend([("acme", change("eve", "rare" if number % 25 == 24 else "vip")) for number in range(100)])
    pages = walk(feed, "rare", limit=limit)
    steps = [after.position[0] - before.position[0] for before, after in itertools.pairwise(pages)]
    assert max([pages[0].position[0], *steps]) <= 10
    assert sum(len(page.items) for page in pages) == 4
    assert [page.is_last for page in pages] == [False] * (len(pages) - 1) + [True]
    assert any(not page.items for page in pages)  # an empty page goes on


def test_a_page_of_other_workspaces_records_is_empty_with_a_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "MAX_SCANNED", 4)
    feed = MemoryFeed()
    feed.partitions[0].extend([("other", change("eve"))] * 20 + [("acme", change("ada"))])
    pages = walk(feed, limit=3)
    assert len(pages) > 1
    assert [one["user_id"] for page in pages for one in page.items] == ["ada"]


@pytest.mark.parametrize(
    ("after", "position"),
    [
        (None, (5, 0)),
        ("latest", (10, 3)),
        (cursor_of((7, 2)), (7, 2)),
        (cursor_of((10, 3)), (10, 3)),
        (cursor_of((7,)), (7, 0)),  # a partition that was added later
    ],
)
def test_the_first_position_of_a_reader(after: str | None, position: tuple[int, ...]) -> None:
    assert starting(after, SPANS) == position


@pytest.mark.parametrize("cursor", ["", "x", "%", cursor_of((7, 2)) + "A", cursor_of((1, 2, 3)), make_cursor("members", (1, 2)),
                                    make_cursor("feed", ("5", 0)), make_cursor("feed", (True, 0))])  # fmt: skip
def test_an_invalid_cursor_of_the_feed_is_refused(cursor: str) -> None:
    with pytest.raises(BadRequest) as refused:
        starting(cursor, SPANS)
    assert refused.value.code == "bad_cursor"


@pytest.mark.parametrize("position", [(4, 0), (11, 0), (5, 4)])
def test_a_deleted_position_is_reported_as_gone(position: tuple[int, ...]) -> None:
    with pytest.raises(CursorExpired):
        starting(cursor_of(position), SPANS)


def test_a_broker_without_records_counts_as_unavailable() -> None:
    feed = filled()
    feed.silent = True
    with pytest.raises(BrokerUnavailable):
        read_page(feed, asked())


def test_following_yields_each_change_with_its_cursor() -> None:
    feed = filled()
    batches = follow(feed, asked(limit=100), (0, 0))
    events = next(batches)
    for place, (cursor, _) in enumerate(events):
        rest = [one["sequence"] for page in walk_from(feed, cursor) for one in page.items]
        assert rest == [one["sequence"] for _, one in events[place + 1 :]]
    assert next(batches) == []
    feed.partitions[1].append(("acme", change("bob", sequence=6)))
    ((_, one),) = next(batches)
    assert one["sequence"] == 6


def walk_from(feed: MemoryFeed, cursor: str) -> list[Page]:
    return [read_page(feed, asked(cursor, limit=100))]


HEARTBEAT = ": heartbeat\n\n"


def test_streams_are_bounded_send_heartbeats_and_end() -> None:
    closed: list[str] = []

    def batches() -> Any:
        try:
            yield [("c1", {"n": "ü"}), ("c2", {"n": 2})]
            while True:
                yield []
        finally:
            closed.append("closed")

    async def use() -> list[str]:
        streams = Streams(1, 0.01)
        stream = streams.open(batches(), "acme")
        with pytest.raises(TooManyStreams):
            streams.open(batches(), "acme")
        sent = await _run(stream, streams)
        streams.open(iter(()), "acme")  # its place is free again
        streams.close()
        return sent

    sent = asyncio.run(use())
    assert [text for text in sent if text != HEARTBEAT] == [
        "retry: 1000\n\n",
        'id: c1\ndata: {"n":"ü"}\n\nid: c2\ndata: {"n":2}\n\n',
        "",
    ]
    assert HEARTBEAT in sent
    assert closed == ["closed"]


async def _run(stream: EventStream, streams: Streams) -> list[str]:
    sent: list[str] = []
    forever = asyncio.Event()

    async def receive() -> Any:
        await forever.wait()

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            sent.append(message["body"].decode())
        if HEARTBEAT in sent and any(text.startswith("id: ") for text in sent):
            streams.end()

    await stream({"type": "http", "method": "GET", "asgi": {"spec_version": "2.3"}}, receive, send)
    return sent


def test_a_stream_ends_without_an_exception_when_its_source_fails() -> None:
    def batches() -> Any:
        yield [("c1", {})]
        raise BrokerUnavailable("gone")

    async def use() -> list[str]:
        streams = Streams(1, 15)
        sent = await _run(streams.open(batches(), "acme"), streams)
        streams.close()
        return sent

    assert asyncio.run(use()) == ["retry: 1000\n\n", "id: c1\ndata: {}\n\n", ""]


def test_one_workspace_cannot_hold_every_stream() -> None:
    streams = Streams(2, 15, 1)
    streams.open(iter(()), "acme")
    with pytest.raises(TooManyStreams, match="1 clients of this workspace"):
        streams.open(iter(()), "acme")
    streams.open(iter(()), "other")
    streams.closed("acme")
    streams.open(iter(()), "acme")
    streams.close()
