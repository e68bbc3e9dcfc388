"""Adapter: items to the ingest API, which checks and limits them as those of any sender, users to the list calls of the API, and
products to the topic of the catalog.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import quote

import httpx
import msgspec

from starling_common.kafka.clients import BrokerUnavailable
from starling_common.kafka.products import ProductFeed
from starling_common.settings import Cassandra
from starling_common.values import deterministic_id
from starling_common.wire import RegistryUnavailable, SchemaMissing
from starling_rules.imports import ImportRequest
from starling_spark.jobs.imports.rows import ImportedRow, RejectedRow

BATCH_ROWS: Final = 500
BATCH_BYTES: Final = 400 * 1024
"""The ingest API takes 512 KiB a request."""
LIST_ROWS: Final = 5_000
LIST_BYTES: Final = 4 * 2**20
"""The API stores a list in 256 buckets, and a call writes one batch for each of them. With few users a call has a batch a user."""
_REQUESTS_AT_ONCE: Final = 4
"""To the ingest API, of one task. The API writes a list for one request at a time."""
_TIMEOUT_SECONDS: Final = 60.0
_GIVE_UP_AFTER_SECONDS: Final = 120.0
_LONGEST_PAUSE_SECONDS: Final = 10.0
_CURE: Final = "correct the row, and import the file again"
_json: Final = msgspec.json.Encoder().encode
_AT_WORK: Final = "at_work"
"""The code of the API while another request writes the list."""


class RequestSize(NamedTuple):
    """The most rows, and the most bytes of their items, of one request. `at_once`: the most requests without an answer."""

    rows: int = BATCH_ROWS
    size_bytes: int = BATCH_BYTES
    at_once: int = 1


class Target(NamedTuple):
    """Where the workers of Spark send rows and store progress. None: the operator has given none for the workspace.

    `brokers`, `registry_url`: for the catalog.
    """

    cassandra: Cassandra
    ingest_url: str
    write_key: str | None
    api_url: str | None = None
    api_token: str | None = None
    brokers: str = ""
    registry_url: str = ""

    def problem(self, request: ImportRequest) -> str | None:
        """Return what an import of this kind needs and the operator has not given; None if it can be sent."""
        if request.kind == "catalog":
            return None
        if request.kind != "lists":
            return (
                "the workspace has no write key for imports: add one to STARLING_IMPORTS_WRITE_KEYS" if not self.write_key else None
            )
        if not self.api_url:
            return "the job does not know the API, which writes lists: set STARLING_IMPORTS_API_URL"
        if not self.api_token:
            return "the workspace has no token of the API for imports: add one to STARLING_IMPORTS_API_TOKENS"
        return None


class TargetUnavailable(Exception):
    """The API or the broker did not accept a batch. The next run of the job continues at this batch."""


class TargetRefused(Exception):
    """The API refuses every batch, such as for its write key. The text has the cure."""


def encoded(row: ImportedRow) -> bytes:
    """Return the item as JSON."""
    return _json(row.item)


def with_message_id(item: bytes, message_id: str) -> bytes:
    """Return the JSON of an item that has none with a message id."""
    return b'%b,"messageId":"%b"}' % (item[:-1], message_id.encode())


def request_size(request: ImportRequest) -> RequestSize:
    """Return the size that the target of an import takes."""
    if request.kind == "lists":
        return RequestSize(LIST_ROWS, LIST_BYTES)
    return RequestSize() if request.kind == "catalog" else RequestSize(at_once=_REQUESTS_AT_ONCE)


class RowSender(Protocol):
    """Sends rows and returns those that are rejected."""

    def send(self, rows: Sequence[ImportedRow], items: Sequence[bytes]) -> list[RejectedRow]:
        """Send a batch. Raises: TargetUnavailable, TargetRefused."""


@contextmanager
def opened_sender(target: Target, workspace: str, request: ImportRequest) -> Iterator[RowSender]:
    """Yield what sends the rows of an import, which has no `Target.problem`; close its connection at the end.

    Raises: TargetUnavailable, TargetRefused.
    """
    if request.kind == "catalog":
        yield ProductSender(_product_feed(target), workspace)
        return
    with httpx.Client(timeout=_TIMEOUT_SECONDS) as client:
        if request.list_key is not None:
            yield ListSender(client, target.api_url or "", target.api_token or "", request.list_key)
        else:
            yield Sender(client, target.ingest_url, target.write_key or "")


class Sender:
    """Posts batches to `/v1/import`. `sleep` waits between two attempts."""

    def __init__(self, client: httpx.Client, url: str, write_key: str, sleep: Callable[[float], None] = time.sleep) -> None:
        self._client = client
        self._url = f"{url.rstrip('/')}/v1/import"
        self._key = write_key
        self._sleep = sleep

    def send(self, rows: Sequence[ImportedRow], items: Sequence[bytes]) -> list[RejectedRow]:
        """Send the rows and return those that the API rejects. Raises: TargetUnavailable, TargetRefused."""
        body = b'{"batch":[' + b",".join(items) + b"]}"
        answer = _answered(self._url, lambda: self._client.post(self._url, content=body, auth=(self._key, "")), self._sleep)
        document = _document(answer)
        if answer.status_code == httpx.codes.OK and document.get("success"):
            return []
        if answer.status_code in {httpx.codes.OK, httpx.codes.BAD_REQUEST} and "rejected" in document:
            return [_rejected(rows, one) for one in document["rejected"]]
        raise TargetRefused(f"{_problem(self._url, answer)}: correct STARLING_IMPORTS_WRITE_KEYS or STARLING_IMPORTS_INGEST_URL")


class ListSender:
    """Adds users to a list, and removes them, by the calls for its members. `sleep` waits between two attempts.

    The key that makes a call safe to repeat follows from the message ids of its rows. So the API answers a batch that is sent
    again after a kill without an effect.
    """

    def __init__(
        self, client: httpx.Client, url: str, token: str, list_key: str, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._client = client
        self._url = f"{url.rstrip('/')}/v1/lists/{quote(list_key, safe='')}/members"
        self._token = token
        self._sleep = sleep

    def send(self, rows: Sequence[ImportedRow], _items: Sequence[bytes]) -> list[RejectedRow]:
        """Add the users of the rows with `onList`, and remove the others. Raises: TargetUnavailable, TargetRefused."""
        for method, on_list in (("POST", True), ("DELETE", False)):
            chosen = [row for row in rows if row.item["onList"] is on_list]
            if chosen:
                self._write(method, chosen)
        return []

    def _write(self, method: str, rows: Sequence[ImportedRow]) -> None:
        body = json.dumps({"users": [row.item["userId"] for row in rows]}).encode()
        key = deterministic_id("import", method, *(row.item["messageId"] for row in rows))
        headers = {"Authorization": f"Bearer {self._token}", "Idempotency-Key": key, "Content-Type": "application/json"}
        answer = _answered(self._url, lambda: self._client.request(method, self._url, content=body, headers=headers), self._sleep)
        if answer.status_code == httpx.codes.OK:
            return
        cure = "correct STARLING_IMPORTS_API_TOKENS or STARLING_IMPORTS_API_URL"
        if answer.status_code in {httpx.codes.NOT_FOUND, httpx.codes.CONFLICT}:
            cure = "create the list again, or import into another one"
        raise TargetRefused(f"{_problem(self._url, answer)}: {cure}")


class ProductSender:
    """Publishes products to the catalog, as `starling catalog load` does. The last record of a product id counts."""

    def __init__(self, feed: ProductFeed, workspace: str) -> None:
        self._feed = feed
        self._workspace = workspace

    def send(self, rows: Sequence[ImportedRow], _items: Sequence[bytes]) -> list[RejectedRow]:
        """Publish the products of the rows, and wait for the acknowledgements. Raises: TargetUnavailable."""
        for row in rows:
            self._feed.publish(self._workspace, row.item["productId"], row.item["product"], row.item["messageId"])
        try:
            self._feed.wait()
        except BrokerUnavailable as error:
            raise TargetUnavailable(str(error)) from error
        return []


def _product_feed(target: Target) -> ProductFeed:
    try:
        return ProductFeed(target.brokers, target.registry_url, "starling-imports")
    except RegistryUnavailable as error:
        raise TargetUnavailable(str(error)) from error
    except SchemaMissing as error:
        raise TargetRefused(str(error)) from error


def _answered(url: str, ask: Callable[[], httpx.Response], sleep: Callable[[float], None]) -> httpx.Response:
    """Return the answer to a request, which is sent again while the service is away or at work. Raises: TargetUnavailable."""
    waited, pause = 0.0, 0.5
    while True:
        requested = None
        try:
            answer = ask()
        except httpx.HTTPError as error:
            problem = f"{url} does not answer ({error})"
        else:
            if not _is_passing(answer):
                return answer
            problem, requested = _problem(url, answer), _seconds(answer.headers.get("retry-after"))
        if waited >= _GIVE_UP_AFTER_SECONDS:
            raise TargetUnavailable(problem)
        pause = min(_LONGEST_PAUSE_SECONDS, pause * 2) if requested is None else requested
        sleep(pause)
        waited += pause


def _is_passing(answer: httpx.Response) -> bool:
    """Return whether the same request may be accepted later."""
    if answer.status_code in {408, 429} or answer.status_code >= httpx.codes.INTERNAL_SERVER_ERROR:
        return True
    return answer.status_code == httpx.codes.CONFLICT and _document(answer).get("code") == _AT_WORK


def _problem(url: str, answer: httpx.Response) -> str:
    document = _document(answer)
    return f"{url} answers {answer.status_code}: {document.get('detail') or document.get('message') or ''}"


def _document(answer: httpx.Response) -> dict[str, Any]:
    try:
        found = answer.json()
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _rejected(rows: Sequence[ImportedRow], entry: dict[str, Any]) -> RejectedRow:
    pointer, separator, reason = str(entry.get("message", "")).partition(": ")
    column, reason = (pointer, reason) if separator and pointer.startswith("/") else ("", str(entry.get("message", "")))
    row = rows[entry["index"]]
    return RejectedRow(row.number, column, str(entry.get("code")), reason, _CURE, row.key)


def _seconds(text: str | None) -> float | None:
    return float(text) if text is not None and text.isdecimal() and int(text) > 0 else None
