"""Adapter: items to the ingest API, which checks and limits them as those of any sender."""

import json
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import httpx

from starling_spark.jobs.imports.rows import ImportedRow, RejectedRow

BATCH_ROWS: Final = 500
BATCH_BYTES: Final = 400 * 1024
"""The ingest API takes 512 KiB a request."""
_GIVE_UP_AFTER_SECONDS: Final = 120.0
_LONGEST_PAUSE_SECONDS: Final = 10.0
_CURE: Final = "correct the row, and import the file again"


class IngestUnavailable(Exception):
    """The ingest API did not accept a batch. The next run of the job continues at this batch."""


class IngestRefused(Exception):
    """The ingest API refuses every batch, such as for its write key."""


def encoded(row: ImportedRow) -> bytes:
    """Return the item as JSON."""
    return json.dumps(row.item, separators=(",", ":"), ensure_ascii=False).encode()


class Sender:
    """Posts batches to `/v1/import`. `sleep` waits between two attempts."""

    def __init__(self, client: httpx.Client, url: str, write_key: str, sleep: Callable[[float], None] = time.sleep) -> None:
        self._client = client
        self._url = f"{url.rstrip('/')}/v1/import"
        self._key = write_key
        self._sleep = sleep

    def send(self, rows: Sequence[ImportedRow], items: Sequence[bytes]) -> list[RejectedRow]:
        """Send the rows and return those that the API rejects. Raises: IngestUnavailable, IngestRefused."""
        body = b'{"batch":[' + b",".join(items) + b"]}"
        waited, pause = 0.0, 0.5
        while True:
            problem, requested = "", None
            try:
                answer = self._client.post(self._url, content=body, auth=(self._key, ""))
            except httpx.HTTPError as error:
                problem = f"{self._url} does not answer ({error})"
            else:
                document = _document(answer)
                if answer.status_code == httpx.codes.OK and document.get("success"):
                    return []
                if answer.status_code in {httpx.codes.OK, httpx.codes.BAD_REQUEST} and "rejected" in document:
                    return [_rejected(rows, one) for one in document["rejected"]]
                problem = f"{self._url} answers {answer.status_code}: {document.get('detail') or document.get('message') or ''}"
                if answer.status_code not in {408, 429} and answer.status_code < httpx.codes.INTERNAL_SERVER_ERROR:
                    raise IngestRefused(problem)
                requested = _seconds(answer.headers.get("retry-after"))
            if waited >= _GIVE_UP_AFTER_SECONDS:
                raise IngestUnavailable(problem)
            pause = min(_LONGEST_PAUSE_SECONDS, pause * 2) if requested is None else requested
            self._sleep(pause)
            waited += pause


def _document(answer: httpx.Response) -> dict[str, Any]:
    try:
        found = answer.json()
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _rejected(rows: Sequence[ImportedRow], entry: dict[str, Any]) -> RejectedRow:
    pointer, separator, reason = str(entry.get("message", "")).partition(": ")
    column, reason = (pointer, reason) if separator and pointer.startswith("/") else ("", str(entry.get("message", "")))
    return RejectedRow(rows[entry["index"]].number, column, str(entry.get("code")), reason, _CURE)


def _seconds(text: str | None) -> float | None:
    return float(text) if text is not None and text.isdecimal() and int(text) > 0 else None
