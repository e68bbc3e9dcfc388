"""Adapter: a history file through the ingest API, in batches, going on where an earlier run stopped."""

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import httpx
import msgspec

from starling_common.outcome import Done, Refused
from starling_local.api_client import refusal
from starling_local.errors import LocalError
from starling_local.history import Item, body_of, with_message_id
from starling_local.instance import write_atomically
from starling_local.stack.services import WRITE_KEY

BATCH_ITEMS = 500
BATCH_BYTES = 400 * 1024
"""Of the lines as they are in the file; leaves room under the API's 512 KiB for what is added to each item."""

_GIVE_UP_AFTER_SECONDS = 120.0
_HEAD_BYTES = 1024 * 1024

Parse = Callable[[str], Done[Item] | Refused]


class ImportFailed(LocalError):
    """The ingest API did not take a batch; what was taken before is recorded, and the same command goes on from there."""


class Progress(msgspec.Struct, frozen=True):
    """How far a file was imported.

    Shape: `head_sha256` is the digest of what was imported (see `head_digest`).
    Units: `offset_bytes` from the file's start; `accepted` and `refused` count lines.
    """

    offset_bytes: int = 0
    accepted: int = 0
    refused: int = 0
    head_sha256: str = ""


@dataclass(frozen=True, slots=True)
class Batch:
    """Some lines of the file. Shape: `faults` are (byte offset, what is wrong) of lines that were no items at all."""

    items: Sequence[Item]
    faults: Sequence[tuple[int, str]]
    end_bytes: int


@dataclass(slots=True)
class Reached:
    """Filled while importing. Shape: `faults` keeps the first hundred refusals as text."""

    progress: Progress
    faults: list[str] = field(default_factory=list)


def head_digest(path: Path, offset_bytes: int) -> str:
    """SHA-256 of the file up to the offset, of its first MiB at most. It stays the same while a file only grows."""
    with path.open("rb") as source:
        return hashlib.sha256(source.read(min(offset_bytes, _HEAD_BYTES))).hexdigest()


def batches(source: BinaryIO, parse: Parse) -> Iterator[Batch]:
    """The rest of an open file as batches; an empty line is none."""
    items: list[Item] = []
    faults: list[tuple[int, str]] = []
    size = 0
    for offset, line in _lines(source):
        match parse(line.decode("utf-8", errors="replace")):
            case Done(item):
                items.append(with_message_id(item, line, offset))
            case Refused(_, message):
                faults.append((offset, message))
        size += len(line)
        if len(items) >= BATCH_ITEMS or size >= BATCH_BYTES:
            yield Batch(items, faults, source.tell())
            items, faults, size = [], [], 0
    if items or faults:
        yield Batch(items, faults, source.tell())


def load_progress(record: Path, file: Path) -> Progress:
    """How far an earlier run got with this very file; the beginning if there was none, or the file is another one now."""
    if not record.exists():
        return Progress()
    found = msgspec.json.decode(record.read_bytes(), type=Progress)
    same = file.stat().st_size >= found.offset_bytes and head_digest(file, found.offset_bytes) == found.head_sha256
    return found if same else Progress()


def save_progress(record: Path, file: Path, progress: Progress) -> None:
    """Replace the record whole."""
    known = msgspec.structs.replace(progress, head_sha256=head_digest(file, progress.offset_bytes))
    write_atomically(record, msgspec.json.encode(known))


class Importer:
    """Sends batches to `/v1/import`. `sleep` is the only thing that waits between attempts."""

    def __init__(self, ingest_url: str, client: httpx.Client, sleep: Callable[[float], None] = time.sleep) -> None:
        """`ingest_url` without a slash at the end."""
        self._url = f"{ingest_url}/v1/import"
        self._client = client
        self._sleep = sleep

    def send(self, batch: Batch, reached: Reached) -> None:
        """Send one batch, and count it in. Raises ImportFailed when the API cannot take it for two minutes."""
        rejected = self._post(batch.items) if batch.items else []
        reached.faults += [f"byte {offset}: {message}" for offset, message in batch.faults]
        reached.faults += rejected
        del reached.faults[100:]
        before = reached.progress
        reached.progress = Progress(
            batch.end_bytes,
            before.accepted + len(batch.items) - len(rejected),
            before.refused + len(batch.faults) + len(rejected),
        )

    def _post(self, items: Sequence[Item]) -> list[str]:
        """What was refused, one text an item."""
        body, waited, pause = body_of(items), 0.0, 0.5
        while True:
            problem, asked_pause = "", None
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
                asked_pause = _retry_after_seconds(answer)
            if waited >= _GIVE_UP_AFTER_SECONDS:
                raise ImportFailed(f"{problem}; the same command goes on where this one stopped")
            pause = min(10.0, pause * 2) if asked_pause is None else asked_pause
            self._sleep(pause)
            waited += pause


def _rejected(answer: httpx.Response, items: Sequence[Item]) -> list[str] | None:
    """The refused items of an answer to a batch; None if the batch as a whole was refused."""
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


def _retry_after_seconds(answer: httpx.Response) -> float | None:
    told = answer.headers.get("retry-after", "")
    return max(0.1, float(told)) if told.isascii() and told.isdigit() else None


def _lines(source: BinaryIO) -> Iterator[tuple[int, bytes]]:
    while True:
        offset = source.tell()
        line = source.readline()
        if not line:
            return
        if line.strip():
            yield offset, line
