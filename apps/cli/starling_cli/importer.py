"""Adapter: imports a history file through the ingest API in batches; a repeated import resumes."""

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import httpx
import msgspec

from starling_cli.api_client import refusal, retry_after_seconds
from starling_cli.history import Item, body_of, with_message_id
from starling_common.outcome import Done, Refused
from starling_local.errors import UserError
from starling_local.instance import write_atomically
from starling_local.stack.parts.services import WRITE_KEY

BATCH_ITEMS = 500
BATCH_BYTES = 400 * 1024
"""Size of the lines in the file. The rest of the API's 512 KiB is for the fields that are added to each item."""

_GIVE_UP_AFTER_SECONDS = 120.0
_HEAD_BYTES = 1024 * 1024

Parse = Callable[[str], Done[Item] | Refused]


class ImportFailed(UserError):
    """The ingest API did not accept a batch. The progress is saved, so the same command resumes."""


class Progress(msgspec.Struct, frozen=True):
    """Progress of the import of one file.

    Shape: `head_sha256` is the digest of the imported part of the file.
    Units: `offset_bytes` from the file's start; `accepted` and `refused` count lines.
    """

    offset_bytes: int = 0
    accepted: int = 0
    refused: int = 0
    head_sha256: str = ""


@dataclass(frozen=True, slots=True)
class Batch:
    """Some lines of the file. Shape: `errors` are (byte offset, message) of the lines that are not items."""

    items: Sequence[Item]
    errors: Sequence[tuple[int, str]]
    end_bytes: int


@dataclass(slots=True)
class ImportResult:
    """Progress and errors of an import, updated by each batch. Shape: `errors` holds the first hundred messages."""

    progress: Progress
    errors: list[str] = field(default_factory=list)


def head_digest(path: Path, offset_bytes: int) -> str:
    """Return the SHA-256 of the file up to the offset, at most of its first MiB. Appending does not change it."""
    with path.open("rb") as source:
        return hashlib.sha256(source.read(min(offset_bytes, _HEAD_BYTES))).hexdigest()


def batches(source: BinaryIO, parse: Parse) -> Iterator[Batch]:
    """Yield the rest of an open file as batches; empty lines are skipped."""
    items: list[Item] = []
    errors: list[tuple[int, str]] = []
    size = 0
    for offset, line in _lines(source):
        match parse(line.decode("utf-8", errors="replace")):
            case Done(item):
                items.append(with_message_id(item, line, offset))
            case Refused(_, message):
                errors.append((offset, message))
        size += len(line)
        if len(items) >= BATCH_ITEMS or size >= BATCH_BYTES:
            yield Batch(items, errors, source.tell())  # vocabulary: tell: method of a Python file
            items, errors, size = [], [], 0
    if items or errors:
        yield Batch(items, errors, source.tell())  # vocabulary: tell: method of a Python file


def load_progress(record: Path, file: Path) -> Progress:
    """Return the saved progress; offset 0 if there is none, or if the content of the file has changed."""
    if not record.exists():
        return Progress()
    found = msgspec.json.decode(record.read_bytes(), type=Progress)
    same = file.stat().st_size >= found.offset_bytes and head_digest(file, found.offset_bytes) == found.head_sha256
    return found if same else Progress()


def save_progress(record: Path, file: Path, progress: Progress) -> None:
    """Replace the record atomically."""
    known = msgspec.structs.replace(progress, head_sha256=head_digest(file, progress.offset_bytes))
    write_atomically(record, msgspec.json.encode(known))


class Importer:
    """Sends batches to `/v1/import`; calls `sleep` between attempts."""

    def __init__(self, ingest_url: str, client: httpx.Client, sleep: Callable[[float], None] = time.sleep) -> None:
        """`ingest_url` has no slash at the end."""
        self._url = f"{ingest_url}/v1/import"
        self._client = client
        self._sleep = sleep

    def send(self, batch: Batch, result: ImportResult) -> None:
        """Send one batch and add it to `result`. Raises ImportFailed if the API does not accept it for two minutes."""
        rejected = self._post(batch.items) if batch.items else []
        result.errors += [f"byte {offset}: {message}" for offset, message in batch.errors]
        result.errors += rejected
        del result.errors[100:]
        before = result.progress
        result.progress = Progress(
            batch.end_bytes,
            before.accepted + len(batch.items) - len(rejected),
            before.refused + len(batch.errors) + len(rejected),
        )

    def _post(self, items: Sequence[Item]) -> list[str]:
        """Send the items; return one message for each refused item."""
        body, waited, pause = body_of(items), 0.0, 0.5
        while True:
            problem, requested_pause = "", None
            try:
                answer = self._client.post(self._url, content=body, auth=(WRITE_KEY, ""))
            except httpx.HTTPError as error:
                problem = f"{self._url} does not answer ({error})"
            else:
                if answer.status_code in (200, 400) and (rejected := _rejected(answer, items)) is not None:
                    return rejected
                problem = refusal(answer)
                if answer.status_code not in (429, 503):
                    raise ImportFailed(problem)
                requested_pause = retry_after_seconds(answer)
            if waited >= _GIVE_UP_AFTER_SECONDS:
                raise ImportFailed(f"{problem}; the same command resumes the import")
            pause = min(10.0, pause * 2) if requested_pause is None else requested_pause
            self._sleep(pause)
            waited += pause


def _rejected(answer: httpx.Response, items: Sequence[Item]) -> list[str] | None:
    """Return one message for each refused item; None if the whole batch was refused."""
    document = answer.json()
    if answer.status_code == httpx.codes.OK and document.get("success"):
        return []
    if "rejected" not in document:
        return None
    return [f"{_id_of(items, entry)}: {entry.get('code')}: {entry.get('message')}" for entry in document["rejected"]]


def _id_of(items: Sequence[Item], entry: dict[str, object]) -> str:
    index = entry.get("index")
    known = items[index].get("messageId") if isinstance(index, int) and 0 <= index < len(items) else None
    return f"message {entry.get('messageId') or known}"


def _lines(source: BinaryIO) -> Iterator[tuple[int, bytes]]:
    while True:
        offset = source.tell()  # vocabulary: tell: method of a Python file
        line = source.readline()
        if not line:
            return
        if line.strip():
            yield offset, line
