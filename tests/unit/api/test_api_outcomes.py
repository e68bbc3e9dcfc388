"""Pages of outcomes: which items they contain, and where they start."""

from typing import Any

import pytest

from starling_api.feed.changes import FeedStep
from starling_api.http.errors import BadRequest, CursorExpired
from starling_api.outcomes import outcomes as module
from starling_api.outcomes.outcomes import OutcomeFilter, Outcomes, OutcomeScan
from starling_common.partitioning import partition_of
from tests.unit.api.memory import MemoryFeed

NOW_MS = 1_767_225_600_000
ANY = OutcomeFilter(None, None, None, None)


def outcome(message_id: str, at_ms: int = NOW_MS, **more: Any) -> dict[str, Any]:
    return {
        "message_id": message_id, "user_id": "ada", "outcome": "ACCEPTED", "event_id": "e", "event_topic": "events.behaviour",
        "code": None, "message": None, "received_at": at_ms * 1000, "decided_at": at_ms, "correlation_id": "c",
        "origin_topic": "ingest.track", "origin_partition": 0, "origin_offset": 7, **more,
    }  # fmt: skip


@pytest.fixture
def log() -> MemoryFeed:
    return MemoryFeed()


@pytest.fixture
def outcomes(log: MemoryFeed) -> Outcomes:
    return Outcomes(log, lambda: NOW_MS)


def ids(page: dict[str, Any]) -> list[str]:
    return [one["message_id"] for one in page["items"]]


def test_a_page_has_the_last_hour_unless_since_is_given(log: MemoryFeed, outcomes: Outcomes) -> None:
    log.partitions[0] = [("acme", outcome("old", NOW_MS - 3_600_001)), ("acme", outcome("new", NOW_MS - 3_600_000))]
    log.partitions[1] = [("other", outcome("theirs")), None, ("acme", outcome("newer"))]
    page = outcomes.page("acme", ANY, None, 100)
    assert ids(page) == ["new", "newer"]
    assert page["next_cursor"] is None
    assert page["as_of"] == "2026-01-01T00:00:00.000Z"
    assert page["items"][0] == {
        "message_id": "new", "user_id": "ada", "outcome": "ACCEPTED", "event_id": "e", "event_topic": "events.behaviour",
        "code": None, "message": None, "received_at": "2025-12-31T23:00:00.000Z", "decided_at": "2025-12-31T23:00:00.000Z",
        "correlation_id": "c",
        "origin": {"topic": "ingest.track", "partition": 0, "offset": 7},
    }  # fmt: skip
    assert ids(outcomes.page("acme", ANY._replace(since="1970-01-01"), None, 100)) == ["old", "new", "newer"]
    assert ids(outcomes.page("acme", ANY._replace(since="2026-01-01T00:00:00Z"), None, 100)) == ["newer"]
    assert ids(outcomes.page("acme", ANY._replace(since="2026-01-01T00:00:01Z"), None, 100)) == []
    assert ids(outcomes.page("acme", ANY._replace(since="0001-01-01"), None, 100)) == ["old", "new", "newer"]


def test_since_is_exact_among_records_out_of_order(log: MemoryFeed, outcomes: Outcomes) -> None:
    log.partitions[0] = [("acme", outcome("b", NOW_MS)), ("acme", outcome("a", NOW_MS - 1))]
    assert ids(outcomes.page("acme", ANY._replace(since="2026-01-01T00:00:00Z"), None, 100)) == ["b"]


def test_pages_continue_and_contain_each_outcome_once(log: MemoryFeed, outcomes: Outcomes) -> None:
    for number in range(20):
        log.partitions[number % 2].append(("acme", outcome(f"m{number}", outcome="REFUSED" if number % 3 else "ACCEPTED")))
    wanted = ANY._replace(outcome="REFUSED")
    found, cursor = [], None
    for _ in range(20):
        page = outcomes.page("acme", wanted, cursor, 4)
        found += ids(page)
        cursor = page["next_cursor"]
        assert len(page["items"]) <= 4
        if cursor is None:
            break
    assert sorted(found) == sorted(f"m{number}" for number in range(20) if number % 3)


def test_a_page_scans_a_bounded_number_of_records(log: MemoryFeed, outcomes: Outcomes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SCANNED", 5)
    log.partitions[0] = [*[("other", outcome("theirs"))] * 8, ("acme", outcome("ours"))]
    page = outcomes.page("acme", ANY._replace(since="1970-01-01"), None, 100)
    assert ids(page) == []
    assert page["next_cursor"] is not None
    assert ids(outcomes.page("acme", ANY._replace(since="1970-01-01"), page["next_cursor"], 100)) == ["ours"]


def test_one_user_is_read_from_one_partition(log: MemoryFeed, outcomes: Outcomes) -> None:
    own = partition_of(b"acme/user", 2)
    log.partitions[own] = [("acme", outcome("found"))]
    log.partitions[1 - own] = [("acme", outcome("elsewhere"))]
    assert ids(outcomes.page("acme", ANY._replace(user_id="user"), None, 100)) == ["found"]


def test_bytes_decide_before_a_record_is_decoded() -> None:
    scan = OutcomeScan("acme", OutcomeFilter("größe-1", "ada", None, None), None, 10)
    assert scan.is_wanted(b"acme/ada", "… größe-1 …".encode())
    assert not scan.is_wanted(b"acme/ada", b"another message")
    assert not scan.is_wanted(b"acme/adam", "größe-1".encode())
    assert not scan.is_wanted(b"acme-2/ada", "größe-1".encode())
    everyone = OutcomeScan("acme", ANY, None, 10)
    assert everyone.is_wanted(b"acme/grace", b"")
    assert not everyone.is_wanted(b"acme-2/grace", b"")


def test_an_id_within_another_is_not_found() -> None:
    scan = OutcomeScan("acme", ANY._replace(message_id="m1"), None, 10)
    assert scan.item_of(FeedStep(0, 1, outcome("m12"))) is None
    assert scan.item_of(FeedStep(0, 1, outcome("m1"))) is not None
    assert scan.item_of(FeedStep(0, 1, None)) is None


def test_an_instant_without_a_date_is_left_out() -> None:
    scan = OutcomeScan("acme", ANY, None, 10)
    assert scan.item_of(FeedStep(0, 1, outcome("m1", 10**17))) is None


def test_bad_input(log: MemoryFeed, outcomes: Outcomes) -> None:
    with pytest.raises(BadRequest, match="since: 'yesterday'"):
        outcomes.page("acme", ANY._replace(since="yesterday"), None, 100)
    with pytest.raises(BadRequest, match="cursor"):
        outcomes.page("acme", ANY, "nonsense", 100)
    log.partitions[0] = [*[("acme", outcome("m1"))] * 3]
    cursor = outcomes.page("acme", ANY, None, 1)["next_cursor"]
    log.first = 2
    with pytest.raises(CursorExpired):
        outcomes.page("acme", ANY, cursor, 1)
