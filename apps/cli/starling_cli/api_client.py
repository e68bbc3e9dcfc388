"""Adapter: HTTP client of the segment API."""

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

import httpx

from starling_local.errors import UserError

_PAGE = 500
_UPLOAD_SECONDS: Final = 600.0
"""A million ids are validated completely before the answer."""
_WAIT_SECONDS: Final = 120.0
"""The longest time that a request waits for its rate limit in all."""
_LEAST_WAIT_SECONDS: Final = 1.0
"""The wait after an answer without a valid `Retry-After`."""


class ApiRefused(UserError):
    """The API answered with an error or did not answer. The text is the API's own message.

    `errors`: code and message of each error of the document.
    """

    def __init__(self, text: str, errors: Sequence[Mapping[str, Any]] = ()) -> None:
        super().__init__(text)
        self.errors = [(str(error.get("code")), str(error.get("message"))) for error in errors]


class ApiClient:
    """Calls the segment API. Every method raises ApiRefused for an error answer, and when the API does not answer."""

    def __init__(
        self, url: str, token: str, client: httpx.Client | None = None, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        """`url` has no slash at the end; tests pass a `client` and `sleep`."""
        self._url = url
        self._token = token
        self._sleep = sleep
        self._client = client or httpx.Client(timeout=30.0)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def segments(self) -> Iterator[Mapping[str, Any]]:
        """Yield every segment; reads page by page."""
        return self._pages("/v1/segments")

    def members(self, key: str) -> Iterator[Mapping[str, Any]]:
        """Yield every member of a segment; reads page by page."""
        return self._pages(f"/v1/segments/{quote(key, safe='')}/members")

    def outcomes(self, filters: Mapping[str, str]) -> Iterator[Mapping[str, Any]]:
        """Yield what became of items. `filters`: parameters of `GET /v1/outcomes`; reads page by page."""
        return self._pages("/v1/outcomes", **filters)

    def as_of(self) -> str | None:
        """Return the stream time of the read models; None before the first event."""
        found: str | None = self._call("GET", "/v1/segments", params={"limit": "1"})["as_of"]
        return found

    def report(self, show: str) -> tuple[Mapping[str, Any], list[Mapping[str, Any]]]:
        """Return one part of the newest audience report: the fields of its first page, and the rows of all pages."""
        path = "/v1/reports/audience"
        head = self._call("GET", path, params={"show": show, "limit": "1"})
        return head, list(self._pages(path, show=show))

    def segment(self, key: str) -> Mapping[str, Any]:
        """Return the current version of a segment."""
        return self._call("GET", f"/v1/segments/{quote(key, safe='')}")

    def change_status(self, key: str, action: str) -> Mapping[str, Any]:
        """Pause or resume a segment. `action`: `pause` or `resume`."""
        return self._call("POST", f"/v1/segments/{quote(key, safe='')}/{action}")

    def rotate_secrets(self, *, dry_run: bool) -> Mapping[str, Any]:
        """Encrypt stored secrets with the newest key, as many as one request can."""
        return self._call("POST", "/v1/secrets/rotate", params={"dry_run": "true"} if dry_run else {})

    def backfills(self) -> Sequence[Mapping[str, Any]]:
        """Return the backfill runs, newest first."""
        found: Sequence[Mapping[str, Any]] = self._call("GET", "/v1/backfills")["items"]
        return found

    def change_backfill(self, run: str, action: str) -> Mapping[str, Any]:
        """Pause, resume or cancel a backfill run. `action`: `pause`, `resume` or `cancel`."""
        return self._call("POST", f"/v1/backfills/{quote(run, safe='')}/{action}")

    def import_rejects(self, key: str) -> Iterator[Mapping[str, Any]]:
        """Yield the rejected rows of an import; reads page by page."""
        return self._pages(f"/v1/imports/{quote(key, safe='')}/rejects")

    def repeat_import(self, key: str, password: str | None, *, any_deletions: bool = False) -> Mapping[str, Any]:
        """Run an import of a database again. `password`: a new one; None: the stored one. `any_deletions`: without the guard."""
        body = {} if password is None else {"password": password}
        body |= {"deletions": "any"} if any_deletions else {}
        return self._call("POST", f"/v1/imports/{quote(key, safe='')}/run", json=body)

    def schedule_import(self, key: str, schedule: Mapping[str, Any]) -> Mapping[str, Any]:
        """Set when an import of a database runs again. Shape: the body of the call."""
        return self._call("PUT", f"/v1/imports/{quote(key, safe='')}/schedule", json=dict(schedule))

    def cancel_import(self, key: str) -> Mapping[str, Any]:
        """Cancel an import."""
        return self._call("DELETE", f"/v1/imports/{quote(key, safe='')}")

    def run_trait(self, key: str) -> Mapping[str, Any]:
        """Queue a run of a computed trait in SQL, unless one waits or runs."""
        return self._call("POST", f"/v1/computed-traits/{quote(key, safe='')}/run")

    def explain(self, user: str, key: str) -> Mapping[str, Any]:
        """Return the explanation of one user's membership in a segment."""
        return self._call("GET", f"/v1/users/{quote(user, safe='')}/explain/{quote(key, safe='')}")

    def create(self, path: str, document: Mapping[str, Any]) -> Mapping[str, Any]:
        """Create one definition with POST."""
        return self._call("POST", path, json=dict(document))

    def apply(self, definition: Mapping[str, Any]) -> Mapping[str, Any]:
        """Create the segment, or a new version if the segment exists."""
        return self.put("/v1/segments", definition)

    def put(
        self, path: str, document: Mapping[str, Any], *, put_creates: bool = False, single: bool = False, dry_run: bool = False
    ) -> Mapping[str, Any]:
        """Create the definition, or change it if it exists.

        `put_creates`: PUT creates one of this path, else POST does. `single`: the path has one document only, without a key.
        """
        params = {"dry_run": "true"} if dry_run else {}
        own = path if single else f"{path}/{quote(str(document.get('key', '')), safe='')}"
        current = self._send("GET", own) if single or document.get("key") else None
        if current is not None and current.status_code != httpx.codes.NOT_FOUND:
            headers = {"If-Match": current.headers.get("etag", "*")}
            return self._call("PUT", own, json=document, params=params, headers=headers)
        if put_creates:
            return self._call("PUT", own, json=document, params=params)
        return self._call("POST", path, json=document, params=params)

    def replace(self, path: str, document: Mapping[str, Any]) -> Mapping[str, Any]:
        """Replace the document of a path that has one only, such as the policy."""
        return self._call("PUT", path, json=document)

    def campaign_report(self, key: str) -> Mapping[str, Any]:
        """Return the funnel and the lift of a campaign."""
        return self._call("GET", f"/v1/campaigns/{quote(key, safe='')}/report")

    def definitions(self, path: str) -> Iterator[Mapping[str, Any]]:
        """Yield every definition under the path that is not archived; reads page by page."""
        return self._pages(path)

    def definition(self, path: str, key: str | None) -> Mapping[str, Any] | None:
        """Return one definition; None if the key was never used. `key`: None for the only document of a path."""
        answer = self._send("GET", path if key is None else f"{path}/{quote(key, safe='')}")
        return None if answer.status_code == httpx.codes.NOT_FOUND else _document(answer)

    def document(self, *place: str) -> Mapping[str, Any]:
        """Return the document of a path below `/v1`. `place`: its parts, such as `users`, the id and `consent`."""
        return self._call("GET", _path(place))

    def items(self, *place: str, **filters: str) -> Iterator[Mapping[str, Any]]:
        """Yield every item of a path below `/v1`; reads page by page."""
        return self._pages(_path(place), **filters)

    def act(
        self, *place: str, document: Mapping[str, Any] | None = None, params: Mapping[str, str] | None = None
    ) -> Mapping[str, Any]:
        """Return the answer to POST. `document`: the body; None: without one."""
        return self._call("POST", _path(place), params=params, **({} if document is None else {"json": document}))

    def remove(self, *place: str) -> None:
        """Archive a definition, or revoke a credential."""
        self._call("DELETE", _path(place))

    def change_members(self, method: str, key: str, ids: bytes) -> int:
        """Replace (PUT), add (POST) or remove (DELETE) members of a list; return their number. `ids`: CSV, one id a row."""
        headers = {"Content-Type": "text/csv"}
        found = self._call(method, _path(("lists", key, "members")), content=ids, headers=headers, timeout=_UPLOAD_SECONDS)
        return int(found["users"])

    def feed(self, after: str | None, segments: Sequence[str]) -> Mapping[str, Any]:
        """Return one page of the feed: `items`, `cursor`, and `next_cursor`, which is null at the end."""
        params: dict[str, Any] = {"limit": str(_PAGE), "segment": list(segments)} | ({"after": after} if after else {})
        return self._call("GET", "/v1/feed", params=params)

    def preview(self, definition: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the estimated size of a segment that does not exist yet."""
        return self._call("POST", "/v1/segments/preview", json=definition)

    def diff(self, key: str, definition: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the estimated numbers of people who enter, leave and stay if a segment is changed."""
        return self._call("POST", f"/v1/segments/{quote(key, safe='')}/diff", json=definition)

    def _pages(self, path: str, **filters: str) -> Iterator[Mapping[str, Any]]:
        cursor: str | None = None
        while True:
            params = filters | {"limit": str(_PAGE)} | ({"cursor": cursor} if cursor else {})
            page = self._call("GET", path, params=params)
            yield from page["items"]
            cursor = page.get("next_cursor")
            if cursor is None:
                return

    def _call(self, method: str, path: str, **more: Any) -> Mapping[str, Any]:
        return _document(self._send(method, path, **more))

    def _send(self, method: str, path: str, **more: Any) -> httpx.Response:
        """Return the answer. A request that is refused with 429 waits as long as the API asks for, and is repeated."""
        waited = 0.0
        while True:
            answer = self._answer(method, path, **more)
            seconds = retry_after_seconds(answer) or _LEAST_WAIT_SECONDS
            if answer.status_code != httpx.codes.TOO_MANY_REQUESTS or waited + seconds > _WAIT_SECONDS:
                return answer
            sys.stderr.write(f"the API limits the rate of requests: the next attempt is in {seconds:g} s\n")
            self._sleep(seconds)
            waited += seconds

    def _answer(self, method: str, path: str, **more: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self._token}", **more.pop("headers", {})}
        if "json" in more:
            # Not by the client library, which raises for half of a surrogate pair and for NaN. The API names the place of either.
            headers["Content-Type"] = "application/json"
            more["content"] = json.dumps(more.pop("json")).encode()
        try:
            return self._client.request(method, f"{self._url}{path}", headers=headers, **more)
        except httpx.HTTPError as error:
            raise ApiRefused(
                f"{self._url} does not answer ({error}): check the address; of a local instance see `starling status`"
            ) from error


def _path(parts: Sequence[str]) -> str:
    return "/".join(["/v1", *(quote(part, safe="") for part in parts)])


def _document(answer: httpx.Response) -> Mapping[str, Any]:
    """Return the document of an answer. Raises: ApiRefused for an error."""
    if answer.is_success:
        found: Mapping[str, Any] = answer.json() if answer.status_code != httpx.codes.NO_CONTENT else {}
        return found
    raise ApiRefused(refusal(answer), _errors(answer))


def _errors(answer: httpx.Response) -> list[Mapping[str, Any]]:
    try:
        problem = answer.json()
    except ValueError:
        return []
    errors = problem.get("errors", ()) if isinstance(problem, dict) else ()
    return [error for error in errors if isinstance(error, dict)]


def retry_after_seconds(answer: httpx.Response) -> float | None:
    """Return the pause that the answer asks for; None if it names none."""
    seconds = answer.headers.get("retry-after", "")
    return max(0.1, float(seconds)) if seconds.isascii() and seconds.isdigit() else None


def refusal(answer: httpx.Response) -> str:
    """Return the message of an error answer with all its validation errors, one a line."""
    try:
        problem = answer.json()
    except ValueError:
        return f"HTTP {answer.status_code} from {answer.request.url}"
    if not isinstance(problem, dict):
        return f"HTTP {answer.status_code} from {answer.request.url}"
    head = str(problem.get("message") or problem.get("detail") or problem.get("title") or answer.reason_phrase)
    errors = [_error_text(error) for error in _errors(answer)]
    return "\n  ".join([f"{head} (HTTP {answer.status_code}, {problem.get('code', 'no code')})", *errors])


def _error_text(error: Mapping[str, Any]) -> str:
    expected = f"; expected {error['expected']}" if error.get("expected") else ""
    return f"{error.get('pointer') or '/'}: {error.get('code')}: {error.get('message')}{expected}"
