import json
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from starling_cli.history import item_of_json
from starling_cli.importer import (
    BATCH_ITEMS,
    Batch,
    Importer,
    ImportFailed,
    ImportResult,
    Progress,
    batches,
    load_progress,
    save_progress,
)

Answer = Callable[[httpx.Request], httpx.Response]


def file_of(tmp_path: Path, count: int) -> Path:
    path = tmp_path / "history.jsonl"
    path.write_text("".join(f'{{"type": "track", "event": "E", "userId": "{n}"}}\n' for n in range(count)))
    return path


def all_batches(path: Path, offset: int = 0) -> list[Batch]:
    with path.open("rb") as source:
        source.seek(offset)
        return list(batches(source, item_of_json))


def importer(answer: Answer, slept: list[float]) -> Importer:
    return Importer("http://ingest", httpx.Client(transport=httpx.MockTransport(answer)), slept.append)


def accepting(_request: httpx.Request) -> httpx.Response:
    return httpx.Response(200, json={"success": True})


def test_every_line_is_in_exactly_one_batch(tmp_path: Path) -> None:
    path = file_of(tmp_path, BATCH_ITEMS * 2 + 3)
    found = all_batches(path)
    assert [len(batch.items) for batch in found] == [BATCH_ITEMS, BATCH_ITEMS, 3]
    assert [item["userId"] for batch in found for item in batch.items] == [str(n) for n in range(BATCH_ITEMS * 2 + 3)]
    assert found[-1].end_bytes == path.stat().st_size


def test_going_on_from_a_batchs_end_gives_the_rest_with_the_same_ids(tmp_path: Path) -> None:
    path = file_of(tmp_path, BATCH_ITEMS + 5)
    first, second = all_batches(path)
    assert all_batches(path, first.end_bytes) == [second]


def test_long_lines_make_small_batches(tmp_path: Path) -> None:
    path = tmp_path / "long.jsonl"
    path.write_text("".join(json.dumps({"userId": str(n), "x": "y" * 30_000}) + "\n" for n in range(30)))
    found = all_batches(path)
    assert len(found) > 1
    assert all(len(json.dumps({"batch": batch.items})) < 512 * 1024 for batch in found)


def test_an_invalid_line_is_reported_with_its_number_and_skipped(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text('{"userId": "1"}\n\n{"userId": \n{"userId": "2"}\n')
    (batch,) = all_batches(path)
    result = ImportResult(Progress())
    importer(accepting, []).send(batch, result)
    assert (result.progress.accepted, result.progress.refused) == (2, 1)
    assert result.errors[0].startswith("byte 17: not JSON")


def test_refused_items_are_counted_and_named(tmp_path: Path) -> None:
    (batch,) = all_batches(file_of(tmp_path, 3))

    def answer(_request: httpx.Request) -> httpx.Response:
        rejected = [{"index": 1, "messageId": None, "code": "missing_event", "message": "no event"}]
        return httpx.Response(200, json={"success": False, "accepted": 2, "rejected": rejected})

    result = ImportResult(Progress())
    importer(answer, []).send(batch, result)
    assert (result.progress.accepted, result.progress.refused) == (2, 1)
    assert result.errors == [f"message {batch.items[1]['messageId']}: missing_event: no event"]


def test_it_waits_for_retry_after_and_repeats_the_request(tmp_path: Path) -> None:
    (batch,) = all_batches(file_of(tmp_path, 2))
    bodies: list[bytes] = []

    def answer(request: httpx.Request) -> httpx.Response:
        bodies.append(request.content)
        busy = httpx.Response(429, headers={"Retry-After": "3"}, json={"code": "busy", "message": "wait"})
        return busy if len(bodies) < 3 else accepting(request)

    slept: list[float] = []
    result = ImportResult(Progress())
    importer(answer, slept).send(batch, result)
    assert slept == [3.0, 3.0]
    assert len(set(bodies)) == 1
    assert result.progress.accepted == 2


def test_it_gives_up_with_the_apis_reason_and_counts_nothing(tmp_path: Path) -> None:
    (batch,) = all_batches(file_of(tmp_path, 2))
    slept: list[float] = []
    result = ImportResult(Progress())
    away = httpx.Response(503, json={"code": "broker_away", "message": "the broker is away"})
    with pytest.raises(ImportFailed, match=r"the broker is away \(HTTP 503, broker_away\); the same command resumes"):
        importer(lambda _request: away, slept).send(batch, result)
    assert sum(slept) >= 120
    assert result.progress == Progress()


def test_a_wrong_key_is_not_tried_again(tmp_path: Path) -> None:
    (batch,) = all_batches(file_of(tmp_path, 2))
    slept: list[float] = []
    refused = httpx.Response(401, json={"code": "unknown_key", "message": "no such key"})
    with pytest.raises(ImportFailed, match="no such key"):
        importer(lambda _request: refused, slept).send(batch, ImportResult(Progress()))
    assert slept == []


def test_progress_goes_on_in_a_file_that_grew_and_not_in_another(tmp_path: Path) -> None:
    path, record = file_of(tmp_path, 5), tmp_path / "p"
    save_progress(record, path, Progress(100, 2, 0))
    assert load_progress(record, path).offset_bytes == 100
    path.write_bytes(path.read_bytes() + b'{"userId": "9"}\n')
    assert load_progress(record, path).offset_bytes == 100
    path.write_bytes(path.read_bytes().replace(b"track", b"TRACK"))
    assert load_progress(record, path) == Progress()


def test_a_file_that_shrank_is_another_one(tmp_path: Path) -> None:
    path, record = file_of(tmp_path, 5), tmp_path / "p"
    save_progress(record, path, Progress(100, 2, 0))
    path.write_bytes(path.read_bytes()[:90])
    assert load_progress(record, path) == Progress()
