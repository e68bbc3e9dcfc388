"""Adapter: the segment API and the ingest API over HTTP, as the local instance's own admin."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import httpx

from starling_local.errors import LocalError
from starling_local.stack.services import API_TOKEN

_PAGE = 500


class ApiRefused(LocalError):
    """The API answered with an error; the text is its own explanation."""


class ApiClient:
    """Calls of the segment API. Raises ApiRefused for an error answer, and when nobody answers."""

    def __init__(self, url: str, client: httpx.Client | None = None) -> None:
        """`url` without a slash at the end; `client` for tests."""
        self._url = url
        self._client = client or httpx.Client(timeout=30.0)

    def close(self) -> None:
        """Give the connections back."""
        self._client.close()

    def segments(self) -> Iterator[Mapping[str, Any]]:
        """Every segment, page by page."""
        return self._pages("/v1/segments")

    def members(self, key: str) -> Iterator[Mapping[str, Any]]:
        """Every member of a segment, page by page."""
        return self._pages(f"/v1/segments/{quote(key, safe='')}/members")

    def as_of(self) -> str | None:
        """The stream time that the read models show; None before the first event."""
        found: str | None = self._call("GET", "/v1/segments", params={"limit": "1"})["as_of"]
        return found

    def report(self, show: str) -> tuple[Mapping[str, Any], list[Mapping[str, Any]]]:
        """A part of the newest audience report: what its first page says, and the rows of all pages."""
        path = "/v1/reports/audience"
        head = self._call("GET", path, params={"show": show, "limit": "1"})
        return head, list(self._pages(path, show=show))

    def segment(self, key: str) -> Mapping[str, Any]:
        """One segment as it is now."""
        return self._call("GET", f"/v1/segments/{quote(key, safe='')}")

    def turn(self, key: str, way: str) -> Mapping[str, Any]:
        """Pause or resume a segment; `way` is one of these words."""
        return self._call("POST", f"/v1/segments/{quote(key, safe='')}/{way}")

    def backfills(self) -> Sequence[Mapping[str, Any]]:
        """The runs that gather the past of new segments, the newest first."""
        found: Sequence[Mapping[str, Any]] = self._call("GET", "/v1/backfills")["items"]
        return found

    def turn_backfill(self, run: str, way: str) -> Mapping[str, Any]:
        """Pause, resume or cancel a run; `way` is one of these words."""
        return self._call("POST", f"/v1/backfills/{quote(run, safe='')}/{way}")

    def explain(self, user: str, key: str) -> Mapping[str, Any]:
        """Why a user is in or out of a segment."""
        return self._call("GET", f"/v1/users/{quote(user, safe='')}/explain/{quote(key, safe='')}")

    def create(self, path: str, document: Mapping[str, Any]) -> Mapping[str, Any]:
        """POST one new definition."""
        return self._call("POST", path, json=dict(document))

    def apply(self, definition: Mapping[str, Any]) -> Mapping[str, Any]:
        """Define the segment, or give it a new version when it is there already."""
        path = f"/v1/segments/{quote(str(definition.get('key', '')), safe='')}"
        current = self._send("GET", path) if definition.get("key") else None
        if current is None or current.status_code == httpx.codes.NOT_FOUND:
            return self._call("POST", "/v1/segments", json=definition)
        return self._call("PUT", path, json=definition, headers={"If-Match": current.headers.get("etag", "*")})

    def _pages(self, path: str, **asked: str) -> Iterator[Mapping[str, Any]]:
        cursor: str | None = None
        while True:
            params = asked | {"limit": str(_PAGE)} | ({"cursor": cursor} if cursor else {})
            page = self._call("GET", path, params=params)
            yield from page["items"]
            cursor = page.get("next_cursor")
            if cursor is None:
                return

    def _call(self, method: str, path: str, **more: Any) -> Mapping[str, Any]:
        answer = self._send(method, path, **more)
        if answer.is_success:
            found: Mapping[str, Any] = answer.json()
            return found
        raise ApiRefused(refusal(answer))

    def _send(self, method: str, path: str, **more: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {API_TOKEN}", **more.pop("headers", {})}
        try:
            return self._client.request(method, f"{self._url}{path}", headers=headers, **more)
        except httpx.HTTPError as error:
            raise ApiRefused(f"{self._url} does not answer ({error}): see `starling status`") from error


def refusal(answer: httpx.Response) -> str:
    """What an error answer says, every fault of it, in one text."""
    try:
        problem = answer.json()
    except ValueError:
        return f"HTTP {answer.status_code} from {answer.request.url}"
    if not isinstance(problem, dict):
        return f"HTTP {answer.status_code} from {answer.request.url}"
    head = str(problem.get("message") or problem.get("detail") or problem.get("title") or answer.reason_phrase)
    faults = [_fault(fault) for fault in problem.get("errors", ()) if isinstance(fault, dict)]
    return "\n  ".join([f"{head} (HTTP {answer.status_code}, {problem.get('code', 'no code')})", *faults])


def _fault(fault: Mapping[str, Any]) -> str:
    expected = f"; expected {fault['expected']}" if fault.get("expected") else ""
    return f"{fault.get('pointer') or '/'}: {fault.get('code')}: {fault.get('message')}{expected}"
