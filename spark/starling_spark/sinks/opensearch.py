"""Adapter: the sink of an index of OpenSearch or Elasticsearch: bulk requests with external versions."""

import ssl
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

import httpx
import msgspec
import pyarrow as pa
from pydantic import SecretStr

from starling_common.values import deterministic_id
from starling_spark.sinks.port import (
    MOST_REASON,
    VERSION,
    RejectedRow,
    Run,
    Shape,
    SinkRefused,
    SinkUnavailable,
    Written,
    check_rejected,
)

BATCH_ROWS: Final = 1_000
BATCH_BYTES: Final = 4 * 1024 * 1024
"""A server takes 100 MiB by default, and a proxy before it often less. A larger document is a request of its own."""
_TIMEOUT_SECONDS: Final = 60.0
_GIVE_UP_AFTER_SECONDS: Final = 120.0
_FIRST_PAUSE_SECONDS: Final = 0.5
_LONGEST_PAUSE_SECONDS: Final = 15.0
_TYPES: Final = {"int64": "long", "int32": "integer", "double": "double", "bool": "boolean"}
_TEXT: Final = {"type": "keyword", "ignore_above": 8191}
_BUSY: Final = frozenset({429, 502, 503, 504})
_CONFLICT: Final = 409
_TOO_LARGE: Final = 413
_RIGHTS: Final = frozenset({401, 403})
_NOT_FOUND: Final = 404


class _Document(NamedTuple):
    """A row as two lines of a bulk request. `key`: for messages."""

    key: str
    version: int
    lines: bytes


@dataclass(frozen=True, slots=True)
class OpenSearch:
    """One index. `uri`: without a password; `secret`: the setting with the password.

    With a user in the URI the password is that of the user, else it is an API key.
    """

    uri: str
    index: str
    password: SecretStr | None
    secret: str

    def check(self, shape: Shape) -> None:
        """Check the login and the index."""
        with self._connected() as server:
            answer = server.request("GET", f"/{self.index}")
            if answer.status_code == _NOT_FOUND:
                raise SinkRefused(f"{self.index}: there is no such index: create it with: {self._definition(shape)}")
            server.check(answer)

    def write(self, shape: Shape, run: Run, batches: Iterable[pa.RecordBatch], most_rejected: int) -> Written:
        """Write a document for each row."""
        accepted, rejected = 0, list[RejectedRow]()
        with self._connected() as server:
            for documents in _requests(_documents(shape, run, batches)):
                refused = server.write(documents)
                rejected += refused
                accepted += len(documents) - len(refused)
                check_rejected(rejected, most_rejected)
        return Written(accepted, tuple(rejected))

    def complete(self, _shape: Shape, _run: Run, _written: Sequence[Written]) -> None:
        """Do nothing: a search finds each document after the next refresh of the index."""

    @contextmanager
    def _connected(self) -> Iterator["_Server"]:
        address = urlsplit(self.uri)
        host = f"[{address.hostname}]" if ":" in (address.hostname or "") else address.hostname
        base = f"{address.scheme}://{host}" + (f":{address.port}" if address.port else "")
        password = None if self.password is None else self.password.get_secret_value()
        headers = {"Content-Type": "application/x-ndjson"}
        login = None
        if address.username:
            login = httpx.BasicAuth(unquote(address.username), password or "")
        elif password is not None:
            headers["Authorization"] = f"ApiKey {password}"
        with httpx.Client(base_url=base, auth=login, headers=headers, timeout=_TIMEOUT_SECONDS) as client:
            yield _Server(client, base, self.index, self.secret)

    def _definition(self, shape: Shape) -> str:
        properties = {field.name: _type(field.type) for field in shape.schema}
        return f"PUT /{self.index} {msgspec.json.encode({'mappings': {'properties': properties}}).decode()}"


class _Server:
    """Requests to one index. Every method may raise SinkRefused and SinkUnavailable."""

    def __init__(self, client: httpx.Client, place: str, index: str, secret: str) -> None:
        self._client = client
        self._place = place
        self._index = index
        self._secret = secret

    def request(self, method: str, path: str, content: bytes | None = None) -> httpx.Response:
        """Return the answer. A server that is busy or away is asked again, for two minutes."""
        wait = _Wait()
        while True:
            try:
                answer = self._client.request(method, path, content=content)
            except httpx.TransportError as error:
                if _is_certificate(error):
                    raise SinkRefused(f"{self._place}: {error}: correct the certificate, or SSL_CERT_FILE of the job") from error
                problem, requested = f"{error or type(error).__name__}: correct host and port, or start the server", None
            else:
                if answer.status_code not in _BUSY:
                    return answer
                problem, requested = f"{_reason(answer)}: wait until it answers", answer.headers.get("retry-after")
            if not wait.again(requested):
                raise SinkUnavailable(f"{self._place}: {problem}")

    def check(self, answer: httpx.Response) -> None:
        """Raise SinkRefused unless the request was accepted."""
        if answer.status_code in _RIGHTS:
            cure = f"correct {self._secret}, or grant the right to read the index's settings and to write documents"
            raise SinkRefused(f"{self._place}: {_reason(answer)}: {cure}")
        if not answer.is_success:
            raise SinkRefused(f"{self._index}: {_reason(answer)}: correct the address or the index")

    def write(self, documents: Sequence[_Document]) -> list[RejectedRow]:
        """Write documents, and return those that the index does not accept."""
        rejected: list[RejectedRow] = []
        wait, left = _Wait(), documents
        while left:
            answer = self.request("POST", f"/{self._index}/_bulk", b"".join(one.lines for one in left))
            if answer.status_code == _TOO_LARGE:
                return [*rejected, *self._halves(left, _reason(answer))]
            self.check(answer)
            busy, problem = list[_Document](), ""
            for document, item in zip(left, answer.json()["items"], strict=True):
                status, error = item["index"]["status"], item["index"].get("error")
                if error is None or status == _CONFLICT:
                    continue  # a conflict: the index has this version of the row, or a newer one
                if status in _BUSY:
                    busy.append(document)
                    problem = _text(error)
                elif status in _RIGHTS or status == _NOT_FOUND:
                    raise SinkRefused(f"{self._index}: {_text(error)}: grant the right to write, or create the index again")
                else:
                    rejected.append(_rejected(document, str(error.get("type")), _text(error)))
            left = busy
            if left and not wait.again(None):
                raise SinkUnavailable(f"{self._index}: {problem}: wait until the index accepts documents")
        return rejected

    def _halves(self, documents: Sequence[_Document], reason: str) -> list[RejectedRow]:
        """Write documents that are too large for one request."""
        if len(documents) == 1:
            return [_rejected(documents[0], "too_large", reason)]
        middle = len(documents) // 2
        return [*self.write(documents[:middle]), *self.write(documents[middle:])]


class _Wait:
    """The pauses between attempts: twice as long each time, or as long as the server asks for."""

    def __init__(self) -> None:
        self._pause = _FIRST_PAUSE_SECONDS
        self._waited = 0.0

    def again(self, requested: str | None) -> bool:
        """Pause before the next attempt; return False, without a pause, if all pauses together have reached their limit."""
        if self._waited >= _GIVE_UP_AFTER_SECONDS:
            return False
        seconds = float(requested) if requested is not None and requested.isdecimal() else self._pause
        seconds = min(seconds, _GIVE_UP_AFTER_SECONDS)
        time.sleep(seconds)
        self._waited += seconds
        self._pause = min(_LONGEST_PAUSE_SECONDS, self._pause * 2)
        return True


def _documents(shape: Shape, run: Run, batches: Iterable[pa.RecordBatch]) -> Iterator[_Document]:
    for batch in batches:
        for row in batch.to_pylist():
            # The server creates no document and replaces none, unless the version is greater than that of the document.
            id_ = deterministic_id(run.export, *[row[name] for name in shape.key])
            action = {"index": {"_id": id_, "version": row[VERSION], "version_type": "external"}}
            lines = msgspec.json.encode(action) + b"\n" + msgspec.json.encode(row) + b"\n"
            yield _Document(shape.key_text(list(row.values())), row[VERSION], lines)


def _requests(documents: Iterator[_Document]) -> Iterator[list[_Document]]:
    found: list[_Document] = []
    size_bytes = 0
    for document in documents:
        if found and (len(found) == BATCH_ROWS or size_bytes + len(document.lines) > BATCH_BYTES):
            yield found
            found, size_bytes = [], 0
        found.append(document)
        size_bytes += len(document.lines)
    if found:
        yield found


def _rejected(document: _Document, code: str, reason: str) -> RejectedRow:
    cure = "correct the mapping of the index, or export fewer columns, and export again from the start"
    return RejectedRow(document.key, document.version, code, reason, cure)


def _reason(answer: httpx.Response) -> str:
    """Return the reason of an answer that is no success."""
    try:
        error: Any = answer.json()["error"]
    except (ValueError, KeyError, TypeError):
        return f"the answer is {answer.status_code}"
    return f"the answer is {answer.status_code}, {_text(error)}"


def _text(error: Any) -> str:
    if not isinstance(error, dict):
        return str(error)[:MOST_REASON]
    cause = error.get("caused_by")
    inner = f" ({cause.get('reason')})" if isinstance(cause, dict) else ""
    return f"{error.get('reason')}{inner}".splitlines()[0][:MOST_REASON].rstrip(".")


def _is_certificate(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _type(kind: pa.DataType) -> dict[str, Any]:
    if pa.types.is_timestamp(kind):
        return {"type": "date"}
    return {"type": _TYPES[str(kind)]} if str(kind) in _TYPES else dict(_TEXT)
