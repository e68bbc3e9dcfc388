"""Files of an import: rows as items, rejected rows, damaged files, and progress."""

import json
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from functools import partial
from pathlib import Path
from threading import Barrier, Event
from types import SimpleNamespace
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs
from pydantic import SecretStr

from starling_common.kafka.clients import BrokerUnavailable
from starling_rules.imports import DONE, FAILED, RUNNING, WAITING, ImportRequest
from starling_spark.jobs.imports import file_import, job
from starling_spark.jobs.imports.changes import ChangedRows, GoneMapper, GoneRows, gone_rows, presence_of
from starling_spark.jobs.imports.file_import import Sent, import_file
from starling_spark.jobs.imports.job import ImportJob
from starling_spark.jobs.imports.pages import KnownRow, decode_page, encode_page, row_id
from starling_spark.jobs.imports.rows import ImportedRow, RejectedRow, RowMapper, UnusableFile, value_of_cell
from starling_spark.jobs.imports.sending import (
    BATCH_BYTES,
    ListSender,
    ProductSender,
    RequestSize,
    Sender,
    Target,
    TargetRefused,
    TargetUnavailable,
    encoded,
    with_message_id,
)
from starling_spark.jobs.imports.settings import api_tokens, drivers, write_keys
from starling_spark.jobs.imports.sources.jdbc import cursor_text, greatest, rows_of_batches
from starling_spark.jobs.imports.sources.reading import SourceUnavailable, found_files, rows_of
from starling_spark.jobs.imports.store import Place, Progress


def wanted(form: str = "csv", **more: Any) -> ImportRequest:
    fields = {"key": "k", "uri": "file:///x", "format": form, "kind": "events", "user_column": "user", "event": "Order"} | more
    return ImportRequest(**fields)


class Ingest:
    """The items by message id, as the normalizer keeps them, and the progress."""

    def __init__(self) -> None:
        self.items: dict[str, dict[str, Any]] = {}
        self.sent = 0
        self.rejected: dict[int, RejectedRow] = {}
        self.progress: list[Progress] = []
        self.running = True

    def send(self, rows: Sequence[ImportedRow], items: Sequence[bytes]) -> Sent:
        for item in items:
            found = json.loads(item)
            self.items.setdefault(found["messageId"], found)
            self.sent += 1
        return Sent()

    def is_running(self) -> bool:
        return self.running

    def add_rejects(self, rows: Sequence[RejectedRow]) -> None:
        self.rejected |= {row.row: row for row in rows}

    def set_progress(self, progress: Progress) -> None:
        self.progress.append(progress)

    def reject_codes(self) -> dict[int, tuple[str, str]]:
        return {number: (row.column, row.code) for number, row in self.rejected.items()}


def imported(path: Path, request: ImportRequest, ingest: Ingest, progress: Progress | None = None) -> Progress:
    rows = partial(rows_of, request, f"file://{path}", str(path))
    mapper = RowMapper(request, "acme", path.name)
    return import_file(request, mapper, rows, ingest.send, ingest, progress or Progress("1"))


def written(directory: Path, content: bytes | str, name: str = "a.csv") -> Path:
    path = directory / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_rows_of_csv_become_items_and_bad_ones_are_rejected(tmp_path: Path) -> None:
    content = (
        "\ufeffuser,at,sum,note\n1,2024-02-29T12:00:00Z,9.5,007\n".encode()
        + b",2024-02-29T12:00:00Z,1,x\n"  # no id
        + b"2,yesterday,1,x\n"
        + b"3,2024-02-29T12:00:00Z,1,M\xfcller\n"  # Latin-1
        + b"4,2024-02-29T12:00:00Z,1\n"  # a cell is missing
        + b'5,2024-02-29T12:00:00Z,true,"a\nb"\n\n'
        + b'6,2024-02-29T12:00:00Z,1,"cut'  # half a file
    )
    ingest = Ingest()
    progress = imported(written(tmp_path, content), wanted(time_column="at"), ingest)
    assert ingest.reject_codes() == {
        2: ("user", "missing_id"),
        3: ("at", "bad_value"),
        4: ("note", "bad_value"),
        5: ("", "wrong_columns"),
        7: ("", "not_csv"),
    }
    assert "iconv" in ingest.rejected[4].cure
    assert all(row.reason and row.cure for row in ingest.rejected.values())
    assert [(item["userId"], item["properties"]) for item in ingest.items.values()] == [
        ("1", {"sum": 9.5, "note": "007"}),
        ("5", {"sum": True, "note": "a\nb"}),
    ]
    assert progress == Progress("1", 7, 2, 5, complete=True)


def test_lines_of_json_become_items_and_bad_ones_are_rejected(tmp_path: Path) -> None:
    lines = [
        '{"user": 7, "plan": {"a": [1, null]}}',
        "[]",
        '{"user": "8", "plan"',
        '{"user": 1.5}',
        '{"user": "9", "plan": "\\ud800"}',
    ]
    ingest = Ingest()
    imported(written(tmp_path, "\n".join(lines)), wanted("jsonl", kind="traits", event=None), ingest)
    assert ingest.reject_codes() == {
        2: ("", "not_an_object"),
        3: ("", "not_json"),
        4: ("user", "bad_value"),
        5: ("plan", "bad_value"),
    }
    assert [(item["type"], item["userId"], item["traits"]) for item in ingest.items.values()] == [
        ("identify", "7", {"plan": {"a": [1, None]}})
    ]


def test_rows_of_accounts_become_group_calls_and_rows_without_a_user_or_an_account_are_rejected(tmp_path: Path) -> None:
    content = (
        "user,company,size,plan\nann,007,12,pro\n"
        ",acme,1,x\n"  # a group call needs a user
        "bob,,1,x\n" + f"bob,{'a' * 513},1,x\n" + "bob,007,13,\n"
    )
    request, ingest, again = wanted(kind="accounts", event=None, account_column="company"), Ingest(), Ingest()
    progress = imported(written(tmp_path, content), request, ingest)
    assert progress == Progress("1", 5, 2, 3, complete=True)
    assert ingest.reject_codes() == {2: ("user", "missing_id"), 3: ("company", "missing_account"), 4: ("company", "id_too_long")}
    assert ingest.rejected[2].cure == "name a user of the account: a group call has one"
    assert [{name: one[name] for name in ("type", "userId", "groupId", "traits")} for one in ingest.items.values()] == [
        {"type": "group", "userId": "ann", "groupId": "007", "traits": {"size": 12, "plan": "pro"}},
        {"type": "group", "userId": "bob", "groupId": "007", "traits": {"size": 13}},
    ]
    imported(tmp_path / "a.csv", request, again)
    assert again.items.keys() == ingest.items.keys()
    # The id of the row alone makes the message id, also in another file.
    keyed = [RowMapper(wanted(kind="accounts", event=None, account_column="company", id_column="id"), "w", name) for name in "ab"]
    rows = [one.map(n, {"user": "u", "company": 5, "id": "r", "size": n}) for n, one in enumerate(keyed)]
    assert [one.item["groupId"] for one in rows if isinstance(one, ImportedRow)] == ["5", "5"]
    assert len({one.item["messageId"] for one in rows if isinstance(one, ImportedRow)}) == 1


def test_columns_of_parquet_keep_their_types_and_a_type_without_json_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table(
        {
            "user": pa.array([1, 2], pa.int64()),
            "at": pa.array([datetime(2024, 2, 29, 12, tzinfo=UTC)] * 2, pa.timestamp("us", "UTC")),
            "sum": pa.array([1.5, float("nan")]),
            "unused": pa.array([b"\x00", b"\x01"]),
        }
    )
    pq.write_table(table, path)
    ingest = Ingest()
    request = wanted("parquet", time_column="at", columns={"sum": "properties.total"})
    assert imported(path, request, ingest).complete
    assert [(item["userId"], item["timestamp"], item["properties"]) for item in ingest.items.values()] == [
        ("1", "2024-02-29T12:00:00+00:00", {"total": 1.5})
    ]
    assert ingest.reject_codes() == {2: ("sum", "bad_value")}
    binary = Ingest()
    imported(path, wanted("parquet", time_column="at"), binary)
    assert {code for _, code in binary.reject_codes().values()} == {"bad_value"}
    assert "bytes" in binary.rejected[1].reason


@pytest.mark.parametrize("kept", [0.5, 0.0])
def test_half_a_parquet_file_fails_with_the_cure(tmp_path: Path, kept: float) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"user": ["a", "b"]}), path)
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * kept)])
    message = imported(path, wanted("parquet"), Ingest()).message
    assert message is not None
    assert "write the file again" in message


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("id,sum\n1,2\n", "there is no column 'user'"),
        ("user,user\n1,2\n", "'user' occurs twice"),
        ("", "is empty"),
        (b"user,stra\xdfe\n1,2\n", "not UTF-8"),
        ('"user\n1', "the header is not CSV"),
    ],
)
def test_a_file_with_a_wrong_header_fails_as_a_whole(tmp_path: Path, content: bytes | str, message: str) -> None:
    ingest = Ingest()
    found = imported(written(tmp_path, content), wanted(), ingest).message
    assert found is not None
    assert message in found
    assert not ingest.items


def test_a_repetition_imports_nothing_twice_and_continues_after_the_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_import, "request_size", lambda _: RequestSize(3))
    path = written(tmp_path, "user,sum\n" + "".join(f"u{n % 4},{n}\n" for n in range(10)))
    ingest = Ingest()
    imported(path, wanted(), ingest)
    assert len(ingest.items) == 10
    killed = ingest.progress[1]  # the third batch was sent, and its progress was not stored
    assert killed.rows_done == 6
    ingest.sent = 0
    again = imported(path, wanted(), ingest, killed)
    assert ingest.sent == 4
    assert len(ingest.items) == 10
    assert (again.rows_done, again.accepted) == (10, 10)


def test_the_next_batch_is_read_while_one_is_sent_and_the_sent_one_is_stored_before_its_damage_ends_the_import(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(file_import, "request_size", lambda _: RequestSize(2))
    is_read, ingest = Event(), Ingest()

    def rows(_start: int) -> Iterator[tuple[int, dict[str, object]]]:
        for number in (1, 2):
            yield number, {"user": f"u{number}"}
        is_read.set()
        raise SourceUnavailable("away")

    def send(rows: Sequence[ImportedRow], items: Sequence[bytes]) -> Sent:
        assert is_read.wait(30)
        return ingest.send(rows, items)

    with pytest.raises(SourceUnavailable):
        import_file(wanted(), RowMapper(wanted(), "acme", "f"), rows, send, ingest, Progress("1"))
    assert [one.rows_done for one in ingest.progress] == [2]


def test_a_repeated_key_is_rejected_also_after_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_import, "request_size", lambda _: RequestSize(2))
    path = written(tmp_path, "user,id\na,1\nb,2\nc,1\n,3\nd,\n")
    ingest = Ingest()
    imported(path, wanted(id_column="id"), ingest, Progress("1", 2, 2))
    assert ingest.reject_codes() == {3: ("id", "duplicate_key"), 4: ("user", "missing_id"), 5: ("id", "missing_key")}


def test_too_many_rejected_rows_stop_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_import, "request_size", lambda _: RequestSize(1))
    path = written(tmp_path, "user\n" + '""\n' * 5 + "a\n")
    ingest = Ingest()
    message = imported(path, wanted(max_rejects=2), ingest).message
    assert message is not None
    assert "stopped after 3 rejected rows" in message
    assert not ingest.items


def test_a_cancelled_import_sends_no_further_batch(tmp_path: Path) -> None:
    ingest = Ingest()
    ingest.running = False
    assert not imported(written(tmp_path, "user\na\n"), wanted(), ingest).complete
    assert not ingest.sent


def test_a_row_that_fits_no_request_is_rejected(tmp_path: Path) -> None:
    lines = [json.dumps({"user": "a", "text": "x" * 500_000}), json.dumps({"user": "b"})]
    ingest = Ingest()
    imported(written(tmp_path, "\n".join(lines)), wanted("jsonl"), ingest)
    assert ingest.reject_codes() == {1: ("", "item_too_large")}
    assert ingest.sent == 1


def test_files_are_found_below_the_permitted_places_only(tmp_path: Path) -> None:
    (tmp_path / "in" / "more").mkdir(parents=True)
    for name in ("in/b.csv", "in/more/a.csv", "in/c.txt", "secret.csv"):
        (tmp_path / name).write_text("user\na\n")
    (tmp_path / "in" / "link.csv").symlink_to(tmp_path / "secret.csv")
    root = f"file://{tmp_path}/in"
    assert [file.name for file in found_files(root, "csv", [root])] == ["b.csv", "more/a.csv"]
    assert [file.name for file in found_files(f"{root}/c.txt", "csv", [root])] == ["c.txt"]
    for uri, form, message in (
        (f"file://{tmp_path}/secret.csv", "csv", "STARLING_IMPORTS_ROOTS"),
        (f"{root}/link.csv", "csv", "STARLING_IMPORTS_ROOTS"),
        (f"{root}x", "csv", "STARLING_IMPORTS_ROOTS"),
        (f"{root}/%2e%2e/secret.csv", "csv", "STARLING_IMPORTS_ROOTS"),
        (f"{root}/lin%6B.csv", "csv", "STARLING_IMPORTS_ROOTS"),
        (f"{root}/%00", "csv", "null byte"),
        ("s3://shop/in/%2e%2e/secret.csv", "csv", "without it"),
        (f"{root}/none.csv", "csv", "there is no such file"),
        (root, "parquet", "no file that ends with .parquet"),
    ):
        with pytest.raises(UnusableFile, match=message):
            found_files(uri, form, [root])


def test_a_path_with_spaces_and_signs_is_that_of_its_uri(tmp_path: Path) -> None:
    file = tmp_path / "a b" / "50%?#.csv"
    file.parent.mkdir()
    file.write_text("user\nann\n")
    (found,) = found_files(file.as_uri(), "csv", [tmp_path.as_uri()])
    assert list(rows_of(wanted(), found.source, found.path, 0)) == [(1, {"user": "ann"})]


def test_the_query_of_a_permitted_place_is_that_of_its_files(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    def from_uri(uri: str) -> None:
        opened.append(uri)
        raise OSError("no route")

    monkeypatch.setattr(fs, "FileSystem", SimpleNamespace(from_uri=from_uri))
    with pytest.raises(SourceUnavailable, match="no route"):
        found_files("s3a://shop/in/a.csv", "csv", ["s3://shop/in?endpoint_override=minio:9000"])
    assert opened == ["s3://shop/in/a.csv?endpoint_override=minio:9000"]


class Store:
    """Imports without files."""

    def __init__(self, *keys: str) -> None:
        self.waiting = {Place("acme", key): wanted(key=key) for key in keys}
        self.states: list[tuple[str, str, str | None]] = []

    def unfinished(self) -> list[tuple[Place, ImportRequest]]:
        return list(self.waiting.items())

    def set_state(self, place: Place, state: str, message: str | None = None) -> bool:
        if state in {DONE, FAILED}:
            self.waiting.pop(place)
        self.states.append((place.key, state, message))
        return True


def test_an_import_that_cannot_go_on_waits_and_the_next_one_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    errors = iter((SourceUnavailable("s3://shop: no route"), UnusableFile("there is no such file")))

    def no_files(*_: object) -> None:
        raise next(errors)

    monkeypatch.setattr(job, "found_files", no_files)
    store, nothing = Store("a", "b"), Any
    target = Target(nothing, "http://ingest", "key")  # type: ignore[arg-type]
    assert ImportJob(nothing, store, lambda _: target, []).run(lambda: False) == {WAITING: 1, FAILED: 1}  # type: ignore[arg-type]
    assert [one for one in store.states if one[1] != RUNNING] == [
        ("a", WAITING, "s3://shop: no route: the job tries again"),
        ("b", FAILED, "there is no such file"),
    ]


ROW = ImportedRow(7, {"userId": "a"}, None)


def sender(*answers: httpx.Response) -> tuple[Sender, list[float]]:
    waits: list[float] = []
    left = list(answers)
    client = httpx.Client(transport=httpx.MockTransport(lambda _: left.pop(0) if len(left) > 1 else left[0]))
    return Sender(client, "http://ingest/", "key", waits.append), waits


def test_a_batch_waits_as_the_ingest_api_requests() -> None:
    sending, waits = sender(httpx.Response(429, headers={"retry-after": "3"}, json={}), httpx.Response(200, json={"success": True}))
    assert sending.send([ROW], [b"{}"]) == []
    assert waits == [3.0]


def test_a_rejected_item_becomes_a_rejected_row() -> None:
    entry = {"index": 0, "code": "too_deep", "message": "/batch/0/properties: nested too deeply"}
    sending, _ = sender(httpx.Response(400, json={"rejected": [entry]}))
    (found,) = sending.send([ROW], [b"{}"])
    assert (found.row, found.code, found.reason) == (7, "too_deep", "nested too deeply")


def test_an_unknown_key_ends_the_import_and_an_unavailable_api_the_run() -> None:
    with pytest.raises(TargetRefused, match="401"):
        sender(httpx.Response(401, json={"detail": "unknown key"}))[0].send([ROW], [b"{}"])
    with pytest.raises(TargetUnavailable, match="503"):
        sender(httpx.Response(503, text="gone"))[0].send([ROW], [b"{}"])


def members(names: str) -> list[ImportedRow]:
    """Rows of an import of a list; a name with a minus is that of a user who is no member any more."""
    users = [(name.lstrip("-"), not name.startswith("-")) for name in names.split()]
    return [ImportedRow(n, {"userId": u, "onList": on, "messageId": f"m-{u}"}, u) for n, (u, on) in enumerate(users, 1)]


class ListApi:
    """The calls for the members of a list, with an answer for each; the last one again."""

    def __init__(self, *answers: httpx.Response) -> None:
        self.calls: list[httpx.Request] = []
        self.waits: list[float] = []
        self._answers = list(answers or [httpx.Response(200, json={})])
        client = httpx.Client(transport=httpx.MockTransport(self._answer))
        self.sender = ListSender(client, "http://api/", "token", "fair", self.waits.append)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.calls.append(request)
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]

    def send(self, names: str) -> list[RejectedRow]:
        return self.sender.send(members(names), [])


def test_users_are_added_to_a_list_and_removed_and_a_repetition_has_the_same_key() -> None:
    api = ListApi()
    assert api.send("ada bob -eve") == api.send("ada bob") == api.send("ada") == []
    assert {(str(one.url), one.headers["authorization"]) for one in api.calls} == {
        ("http://api/v1/lists/fair/members", "Bearer token")
    }
    assert [(one.method, json.loads(one.content)["users"]) for one in api.calls] == [
        ("POST", ["ada", "bob"]), ("DELETE", ["eve"]), ("POST", ["ada", "bob"]), ("POST", ["ada"]),
    ]  # fmt: skip
    first, removed, repeated, other = (one.headers["idempotency-key"] for one in api.calls)
    assert first == repeated
    assert len({first, removed, other}) == 3


def test_a_list_that_another_request_writes_is_waited_for_and_a_deleted_one_ends_the_import() -> None:
    busy = httpx.Response(409, json={"code": "at_work", "detail": "is being written"})
    api = ListApi(busy, httpx.Response(503, headers={"retry-after": "2"}), httpx.Response(200, json={}))
    assert api.send("ada") == []
    assert api.waits == [1.0, 2.0]
    assert len({one.headers["idempotency-key"] for one in api.calls}) == 1
    for status, code, cure in (
        (404, "unknown_list", "create the list again, or import into another one"),
        (409, "archived", "create the list again, or import into another one"),
        (403, "forbidden", "correct STARLING_IMPORTS_API_TOKENS or STARLING_IMPORTS_API_URL"),
    ):
        refused = ListApi(httpx.Response(status, json={"code": code, "detail": "it is so"}))
        with pytest.raises(TargetRefused, match=f"{status}: it is so: {cure}"):
            refused.send("ada")
        assert len(refused.calls) == 1


def test_an_import_that_lacks_a_key_or_a_token_fails_with_the_cure() -> None:
    events, lists = wanted(), wanted(kind="lists", event=None, list_key="fair")
    nothing = Target(Any, "http://ingest", None)  # type: ignore[arg-type]
    whole = nothing._replace(write_key="key", api_url="http://api", api_token="token")
    assert nothing.problem(catalog()) is None
    assert whole.problem(events) is whole.problem(lists) is nothing._replace(write_key="key").problem(events) is None
    for target, request, setting in (
        (nothing, events, "STARLING_IMPORTS_WRITE_KEYS"),
        (whole._replace(api_url=None), lists, "STARLING_IMPORTS_API_URL"),
        (whole._replace(api_token=None), lists, "STARLING_IMPORTS_API_TOKENS"),
    ):
        assert setting in str(target.problem(request))


def test_rows_of_a_list_are_users_whatever_else_they_have(tmp_path: Path) -> None:
    ingest = Ingest()
    content = "user,note\n007,M\u00fcller\n,x\n007,other\n8,\n"
    progress = imported(written(tmp_path, content), wanted(kind="lists", event=None, list_key="fair"), ingest)
    assert progress == Progress("1", 4, 3, 1, complete=True)
    assert ingest.reject_codes() == {2: ("user", "missing_id")}
    found = [{name: value for name, value in one.items() if name != "messageId"} for one in ingest.items.values()]
    assert found == [{"userId": user, "onList": True} for user in ("007", "007", "8")]


def catalog(form: str = "csv", **more: Any) -> ImportRequest:
    return ImportRequest(key="k", uri="file:///x", format=form, kind="catalog", product_column="sku", **more)  # type: ignore[arg-type]


def test_rows_of_the_catalog_are_products_with_texts_and_a_price(tmp_path: Path) -> None:
    content = (
        "sku,name,price,brand,colour\n007,1984,12.50,,red\n,x,1,,\nb,x,12 EUR,,\nc,x,1_000,,\nd,x,nan,,\n"
        f"{'e' * 513},x,1,,\n"
        "f,,,Acme,\n"
    )
    ingest, again = Ingest(), Ingest()
    assert imported(written(tmp_path, content), catalog(), ingest) == Progress("1", 7, 2, 5, complete=True)
    assert ingest.reject_codes() == {
        2: ("sku", "missing_product"), 3: ("price", "bad_value"), 4: ("price", "bad_value"), 5: ("price", "bad_value"),
        6: ("sku", "id_too_long"),
    }  # fmt: skip
    assert ingest.rejected[3].cure == "write a number with a point, such as 12.5"
    assert [(one["productId"], one["product"]) for one in ingest.items.values()] == [
        ("007", {"name": "1984", "price": 12.5}),
        ("f", {"brand": "Acme"}),
    ]
    imported(tmp_path / "a.csv", catalog(), again)
    assert again.items.keys() == ingest.items.keys()
    mapped = Ingest()
    imported(tmp_path / "a.csv", catalog(columns={"colour": "product.category"}), mapped)
    assert [one["product"] for one in mapped.items.values()][:1] == [{"category": "red"}]


def test_a_product_of_json_has_the_same_types(tmp_path: Path) -> None:
    lines = ['{"sku": 5, "name": 1984, "price": 3}', '{"sku": "a", "price": true}', '{"sku": "b", "name": ["x"]}']
    ingest = Ingest()
    imported(written(tmp_path, "\n".join(lines), "a.jsonl"), catalog("jsonl"), ingest)
    assert [(one["productId"], one["product"]) for one in ingest.items.values()] == [("5", {"name": "1984", "price": 3.0})]
    assert ingest.reject_codes() == {2: ("price", "bad_value"), 3: ("name", "bad_value")}


class Feed:
    """The topic of the catalog. `is_away`: the broker does not acknowledge."""

    def __init__(self) -> None:
        self.products: dict[tuple[str, str], Any] = {}
        self.is_away = False

    def publish(self, workspace: str, product_id: str, fields: Any, correlation_id: str) -> None:
        assert correlation_id.startswith("m-")
        self.products[workspace, product_id] = fields

    def wait(self) -> None:
        if self.is_away:
            raise BrokerUnavailable("catalog.products: no route")


def test_a_product_is_acknowledged_before_its_batch_and_a_gone_one_is_no_longer_listed() -> None:
    feed = Feed()
    sending = ProductSender(feed, "acme")  # type: ignore[arg-type]
    rows = [
        ImportedRow(1, {"productId": "a", "product": {"price": 1.0}, "messageId": "m-1"}, "a"),
        GoneMapper("catalog").map(2, {"id": b"\x07", "user": "b", "traits": []}),
    ]
    rows[1] = rows[1]._replace(item={**rows[1].item, "messageId": "m-2"})
    assert sending.send(rows, []) == []
    assert feed.products == {("acme", "a"): {"price": 1.0}, ("acme", "b"): None}
    feed.is_away = True
    with pytest.raises(TargetUnavailable, match="no route"):
        sending.send(rows, [])


def test_write_keys_by_workspace() -> None:
    assert write_keys(SecretStr("a=acme, b=shop,c=acme")) == {"acme": "a", "shop": "b"}
    with pytest.raises(ValueError, match="key=workspace"):
        write_keys(SecretStr("a"))
    assert api_tokens(SecretStr("")) == {}
    assert api_tokens(SecretStr("t=acme")) == {"acme": "t"}
    with pytest.raises(ValueError, match="token=workspace"):
        api_tokens(SecretStr("planted"))


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("", None), ("true", True), ("false", False), ("12", 12), ("-0.5", -0.5), (" 12", 12), ("\t1e3 ", 1000.0), ("007", "007"),
        ("1e400", "1e400"), ("-Infinity", "-Infinity"), ("NaN", "NaN"), ("null", "null"), ("-", "-"), (" ", " "), ("+1", "+1"),
        ("[1]", "[1]"), ("\u0661", "\u0661"), ("1_0", "1_0"), ("2024-02-29", "2024-02-29"),
    ],
)  # fmt: skip
def test_a_cell_is_a_number_a_boolean_or_text(cell: str, value: Any) -> None:
    found = value_of_cell(cell)
    assert (found, type(found)) == (value, type(value))


def test_users_of_a_list_are_sent_by_larger_requests_than_items(tmp_path: Path) -> None:
    lines = [f"u{number}" for number in range(6_000)]
    path = written(tmp_path, "\n".join(["user", *lines]) + "\n")
    for request, sizes in (
        (wanted(kind="lists", event=None, list_key="fair"), [5_000, 1_000]),
        (wanted(), [500] * 12),
    ):
        found = list[int]()
        rows = partial(rows_of, request, "file:///", str(path))
        mapper = RowMapper(request, "acme", path.name)

        def send(rows: Sequence[ImportedRow], _items: Sequence[bytes], found: list[int] = found) -> Sent:
            found.append(len(rows))
            return Sent()

        import_file(request, mapper, rows, send, Ingest(), Progress("1"))
        assert found == sizes


def test_an_item_is_json_with_a_message_id_at_its_end() -> None:
    item = encoded(ImportedRow(1, {"userId": "ünï", "traits": {"n": 2**70, "x": 1e300, "q": 'a"b'}}, "k"))
    assert json.loads(with_message_id(item, "m-1")) == {**json.loads(item), "messageId": "m-1"}
    assert json.loads(item) == {"userId": "ünï", "traits": {"n": 2**70, "x": 1e300, "q": 'a"b'}}


def test_a_page_is_read_as_it_was_written_and_has_the_names_of_traits_once() -> None:
    traits = [["plan", "region"], ["plan"], []]
    page = {
        row_id(f"u{number}"): KnownRow(number, b"d" * 16, number % 2 == 0, number, f"u{number}", traits[number % 3])
        for number in range(90)
    }
    page |= {row_id("gone"): KnownRow(2, b"", sent=True), row_id("new"): KnownRow(1, b"d", sent=False)}
    content = encode_page(page)
    assert decode_page(content) == page
    assert content.count(b"region") == 1
    assert decode_page(encode_page({})) == {}


class Known:
    """Rows of a database as they were sent."""

    def __init__(self) -> None:
        self.rows: dict[bytes, KnownRow] = {}

    def known_rows(self, ids: Sequence[bytes]) -> list[KnownRow | None]:
        return [self.rows.get(one) for one in ids]

    def set_rows(self, rows: Sequence[tuple[bytes, KnownRow]]) -> None:
        self.rows |= dict(rows)


def test_a_change_that_was_not_acknowledged_is_sent_again_with_its_message_id() -> None:
    known, ids = Known(), list[str]()
    answers: list[Exception | list[RejectedRow]] = []

    def send(rows: Sequence[ImportedRow], items: Sequence[bytes]) -> list[RejectedRow]:
        ids.extend(json.loads(item)["messageId"] for item in items)
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def run(plan: str, *then: Exception | list[RejectedRow]) -> int:
        answers[:] = then
        row = ImportedRow(1, {"userId": "a", "traits": {"plan": plan}}, "a")
        return ChangedRows(known, Place("acme", "crm"), send).send([row], [encoded(row)]).unchanged

    with pytest.raises(TargetUnavailable):
        run("pro", TargetUnavailable("away"))
    assert run("pro", []) == 0
    assert run("pro") == 1
    assert run("free", [RejectedRow(1, "", "too_deep", "r", "c")]) == 0
    assert run("free", []) == 0
    assert run("pro", []) == 0
    assert (ids[0] == ids[1], ids[2] == ids[3], len(set(ids))) == (True, True, 3)


def test_many_changes_are_sent_by_requests_and_those_before_a_failure_are_not_sent_again() -> None:
    known, sizes, away = Known(), list[int](), [False]

    def send(rows: Sequence[ImportedRow], items: Sequence[bytes]) -> list[RejectedRow]:
        assert sum(map(len, items)) <= BATCH_BYTES
        if away[0] and len(sizes) == 2:
            raise TargetUnavailable("away")
        sizes.append(len(rows))
        return [RejectedRow(row.number, "", "x", "r", "c") for row in rows if row.key == "u7"]

    def run(rows: Sequence[ImportedRow]) -> Sent:
        sizes.clear()
        return ChangedRows(known, Place("acme", "crm"), send).send(rows, [encoded(row) for row in rows])

    small = [ImportedRow(number, {"userId": f"u{number}", "traits": PRO}, f"u{number}") for number in range(1_200)]
    away[0] = True
    with pytest.raises(TargetUnavailable):
        run(small)
    away[0] = False
    assert [row.row for row in run(small).rejected] == [7]
    assert sizes == [201]  # and not the 999 rows that were acknowledged before
    assert run(small).unchanged == 1_199
    large = [row._replace(item={**row.item, "traits": {"note": "x" * 150_000}}) for row in small[:5]]
    run(large)
    assert sizes == [2, 2, 1]


def test_requests_are_sent_at_once_and_those_acknowledged_beside_a_failed_one_are_stored() -> None:
    known, barrier, begun = Known(), Barrier(3, timeout=30), list[int]()

    def send(rows: Sequence[ImportedRow], _items: Sequence[bytes]) -> list[RejectedRow]:
        begun.append(rows[0].number)
        barrier.wait()  # until three requests are under way
        if rows[0].number == 2:
            raise TargetUnavailable("away")
        return []

    rows = [ImportedRow(number, {"userId": f"u{number}", "traits": PRO}, f"u{number}") for number in range(3)]
    changes = ChangedRows(known, Place("acme", "crm"), send, size=RequestSize(1, at_once=3))
    with pytest.raises(TargetUnavailable):
        changes.send(rows, [encoded(row) for row in rows])
    assert sorted(begun) == [0, 1, 2]
    assert sorted(row.sent for row in known.rows.values()) == [False, True, True]


def test_requests_at_once_are_bounded_and_those_that_have_not_begun_are_left_out_after_a_failed_one() -> None:
    known, begun, under_way, most = Known(), list[int](), set[int](), list[int]()

    def send(rows: Sequence[ImportedRow], _items: Sequence[bytes]) -> list[RejectedRow]:
        number = rows[0].number
        begun.append(number)
        under_way.add(number)
        most.append(len(under_way))
        try:
            time.sleep(0.05)  # sleep: longer than the start of another request, and the refusal of the others, take
            if number == 3:
                raise TargetUnavailable("away")
        finally:
            under_way.discard(number)
        return []

    rows = [ImportedRow(number, {"userId": f"u{number}", "traits": PRO}, f"u{number}") for number in range(500)]
    with pytest.raises(TargetUnavailable):
        ChangedRows(known, Place("acme", "crm"), send, size=RequestSize(1, at_once=2)).send(rows, [encoded(row) for row in rows])
    assert max(most) == 2
    assert len(begun) < 500


def test_a_key_that_occurs_twice_in_a_batch_is_one_row_with_two_changes() -> None:
    known, ids = Known(), list[str]()

    def send(_rows: Sequence[ImportedRow], items: Sequence[bytes]) -> list[RejectedRow]:
        ids.extend(json.loads(item)["messageId"] for item in items)
        return []

    rows = [ImportedRow(number, {"userId": "ada", "traits": traits}, "ada") for number, traits in enumerate((PRO, FREE), 1)]
    ChangedRows(known, Place("acme", "crm"), send).send(rows, [encoded(row) for row in rows])
    assert len(set(ids)) == 2
    assert [(row.version, row.sent) for row in known.rows.values()] == [(2, True)]


class Crm:
    """A table of users with a plan and a region, the imports of it, and what they sent."""

    place = Place("acme", "crm")

    def __init__(self) -> None:
        self.known = Known()
        self.runs = 0
        self.sent: list[tuple[str, dict[str, Any], str]] = []
        self.refused = False
        self.away = False

    def send(self, rows: Sequence[ImportedRow], items: Sequence[bytes]) -> list[RejectedRow]:
        found = [json.loads(item) for item in items]
        self.sent += [(one["userId"], one["traits"], one["messageId"]) for one in found]
        if self.away:
            raise TargetUnavailable("away")
        return [RejectedRow(row.number, "", "x", "r", "c") for row in rows] if self.refused else []

    def read(self, rows: dict[str, dict[str, Any]], rejected: Sequence[str] = (), user: str | None = None) -> None:
        """Import rows by their ids, which are users too unless all are rows of one user."""
        self.runs += 1
        changes = ChangedRows(self.known, self.place, self.send, self.runs)
        made = [
            ImportedRow(number, {"type": "identify", "userId": user or key, "traits": traits}, key)
            for number, (key, traits) in enumerate(rows.items(), 1)
        ]
        changes.send(made, [encoded(row) for row in made])
        changes.keep([RejectedRow(9, "", "x", "r", "c", key) for key in rejected])

    def delete(self) -> list[tuple[str, dict[str, Any]]]:
        """Delete what the last run has not read, as the job does; return the calls."""
        before = len(self.sent)
        users: dict[str | None, list[tuple[bytes, KnownRow]]] = {}
        for stored in self.known.rows.items():
            users.setdefault(stored[1].user_id, []).append(stored)
        gone = [one for rows in users.values() for one in gone_rows(rows, self.runs)]
        made = [GoneMapper().map(number, {"id": one[0], "user": one[1], "traits": one[2]}) for number, one in enumerate(gone, 1)]
        GoneRows(self.known, self.place, self.send).send(made, [])
        return [one[:2] for one in self.sent[before:]]

    def presences(self) -> list[str]:
        return sorted(presence_of(row, self.runs) for row in self.known.rows.values())


PRO, FREE = {"plan": "pro", "region": "eu"}, {"plan": "free"}


def test_the_traits_of_a_row_that_is_gone_are_set_to_null_once_and_a_row_that_returns_is_sent() -> None:
    crm = Crm()
    crm.read({"ada": PRO, "bob": FREE})
    assert crm.presences() == ["present", "present"]
    assert crm.delete() == []
    crm.read({"bob": FREE})
    assert crm.presences() == ["gone", "present"]
    assert crm.delete() == [("ada", {"plan": None, "region": None})]
    assert crm.presences() == ["forgotten", "present"]
    assert all(row.user_id != "ada" for row in crm.known.rows.values())
    crm.read({"bob": FREE})
    assert crm.delete() == []
    # The same row returns, and is gone again: each call has a message id of its own.
    crm.read({"ada": PRO, "bob": FREE})
    assert crm.sent[-1][:2] == ("ada", PRO)
    crm.read({"bob": FREE})
    assert crm.delete() == [("ada", {"plan": None, "region": None})]
    ids = [one[2] for one in crm.sent if one[0] == "ada"]
    assert (len(ids), len(set(ids))) == (4, 4)


def test_the_user_of_a_row_that_is_gone_leaves_the_list_once_and_enters_again_with_it() -> None:
    known, sent = Known(), list[tuple[str, bool, str]]()
    place = Place("acme", "fair")

    def send(rows: Sequence[ImportedRow], _items: Sequence[bytes]) -> list[RejectedRow]:
        sent.extend((row.item["userId"], row.item["onList"], row.item["messageId"]) for row in rows)
        return []

    def run(at_ms: int, *users: str) -> list[tuple[str, bool]]:
        before = len(sent)
        rows = [ImportedRow(number, {"userId": user, "onList": True}, user) for number, user in enumerate(users, 1)]
        ChangedRows(known, place, send, at_ms).send(rows, [encoded(row) for row in rows])
        gone = [
            GoneMapper("lists").map(1, {"id": id_, "user": user, "traits": traits})
            for id_, user, traits in gone_rows(list(known.rows.items()), at_ms)
        ]
        GoneRows(known, place, send).send(gone, [])
        return [one[:2] for one in sent[before:]]

    assert run(1, "ada", "bob") == [("ada", True), ("bob", True)]
    assert run(2, "bob") == [("ada", False)]
    assert run(3, "bob") == []
    assert run(4, "ada", "bob") == [("ada", True)]
    assert len({message_id for *_, message_id in sent}) == len(sent)


def test_a_deletion_that_was_not_acknowledged_is_sent_again_with_its_message_id() -> None:
    crm = Crm()
    crm.read({"ada": PRO})
    crm.read({})
    crm.away = True
    with pytest.raises(TargetUnavailable):
        crm.delete()
    crm.away, crm.refused = False, True
    crm.read({})
    assert len(crm.delete()) == 1  # it is rejected, and tried again by the next run
    crm.refused = False
    crm.read({})
    assert len(crm.delete()) == 1
    ids = [one[2] for one in crm.sent[1:]]
    assert (len(ids), len(set(ids))) == (3, 1)
    crm.read({})
    assert crm.delete() == []


def test_a_row_that_returns_before_its_deletion_is_acknowledged_is_sent_after_it() -> None:
    crm = Crm()
    crm.read({"ada": PRO})
    crm.read({})
    crm.away = True
    with pytest.raises(TargetUnavailable):
        crm.delete()
    crm.away = False
    crm.read({"ada": PRO})
    assert (crm.sent[-1][:2], crm.presences(), crm.delete()) == (("ada", PRO), ["present"], [])
    assert len({one[2] for one in crm.sent}) == 3


def test_a_row_that_is_rejected_is_not_gone() -> None:
    crm = Crm()
    crm.read({"ada": PRO, "bob": FREE})
    crm.read({"bob": FREE}, rejected=["ada", "never-sent"])
    assert (crm.presences(), crm.delete()) == (["present", "present"], [])


def test_a_trait_that_became_null_before_is_deleted_with_the_row() -> None:
    crm = Crm()
    crm.read({"ada": PRO})
    crm.read({"ada": FREE})
    crm.read({})
    assert crm.delete() == [("ada", {"plan": None, "region": None})]


def test_a_user_whose_row_has_another_id_now_keeps_the_traits_of_the_new_row() -> None:
    crm = Crm()
    crm.read({"1": PRO, "2": FREE}, user="ada")
    crm.read({"7": {"plan": "new"}}, user="ada")
    assert crm.delete() == [("ada", {"region": None})]  # of row 1; row 2 has no trait that is not one of row 7
    assert crm.presences() == ["forgotten", "forgotten", "present"]


def test_without_deletions_neither_users_nor_runs_are_stored() -> None:
    known = Known()
    row = ImportedRow(1, {"userId": "ada", "traits": PRO}, "ada")
    changes = ChangedRows(known, Place("acme", "crm"), lambda _rows, _items: [])
    changes.send([row], [encoded(row)])
    (stored,) = known.rows.values()
    assert stored == KnownRow(1, stored.digest, sent=True)


def test_the_id_of_a_rejected_row_is_that_of_an_imported_one() -> None:
    mapper = RowMapper(wanted("jdbc", kind="traits", event=None, id_column="id"), "acme", "rows")
    for values, key in (({"id": 7, "plan": float("nan")}, "7"), ({"id": 7.5, "user": "a"}, None), ({"user": "a"}, None)):
        row = mapper.map(1, values)
        assert isinstance(row, RejectedRow)
        assert row.key == key
    for ids, kind, key in (
        (["12"], "number", "12"),
        (["1.5"], "number", None),
        (["a-1"], None, "a-1"),
        ([7], None, "7"),
        ([Decimal(7)], None, "7"),
        ([None], None, None),
    ):
        batch = pa.RecordBatch.from_pydict({"at": ["infinity"], "id": ids})
        kinds = {"at": "time"} | ({"id": kind} if kind else {})
        (found,) = rows_of_batches([batch], kinds, "id")
        assert isinstance(found, RejectedRow)
        assert found.key == key


def test_cursors_of_one_column_are_compared_by_their_values() -> None:
    zone = timezone(timedelta(hours=2))
    assert greatest(map(cursor_text, (9, 10, Decimal("9.5")))) == "10"
    assert greatest(map(cursor_text, (datetime(2026, 1, 1, 1, tzinfo=zone), datetime(2025, 12, 31, 23, 30, tzinfo=UTC)))) == (
        "2025-12-31T23:30:00.000000+00:00"
    )
    assert greatest(map(cursor_text, (date(2026, 1, 2), date(2026, 1, 1)))) == "2026-01-02"
    assert greatest(()) is None


def test_texts_of_a_database_become_numbers_and_times_or_are_rejected() -> None:
    batch = pa.RecordBatch.from_pydict({
        "n": ["7", "-1.50", "NaN", None, "1"],
        "at": ["2026-01-02 03:04:05.5+01", "2026-01-02", None, "10:30:00", "infinity"],
    })  # fmt: skip
    found = list(rows_of_batches([batch.slice(0, 2), batch.slice(2)], {"n": "number", "at": "time"}))
    assert found[:2] == [
        (1, {"n": 7, "at": datetime(2026, 1, 2, 3, 4, 5, 500_000, timezone(timedelta(hours=1)))}),
        (2, {"n": -1.5, "at": date(2026, 1, 2)}),
    ]
    assert found[3] == (4, {"n": None, "at": "10:30:00"})
    assert [(one.row, one.column, one.code) for one in found if isinstance(one, RejectedRow)] == [
        (3, "n", "bad_value"), (5, "at", "bad_value"),
    ]  # fmt: skip


def test_drivers_are_those_of_the_installation_and_of_the_operator() -> None:
    assert drivers("") == {"postgresql": "org.postgresql.Driver"}
    assert drivers(" mariadb=org.mariadb.jdbc.Driver, ")["mariadb"] == "org.mariadb.jdbc.Driver"
    with pytest.raises(ValueError, match="not name=class"):
        drivers("mariadb")
