"""Pure core: Meta: the users of custom audiences of customer files, as SHA-256."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from starling_audience.adapters.adapter import (
    JSON_TYPE,
    Again,
    AudienceRequest,
    Ended,
    Response,
    Result,
    Taken,
    by_segment,
    chunks,
    result_of_status,
    text_of,
    to_json,
)
from starling_audience.changes import Change
from starling_audience.identifiers import sha256_hex

DEFAULT_URL: Final = "https://graph.facebook.com/v25.0"
MOST_USERS: Final = 10_000
SCHEMA: Final = ("EXTERN_ID", "EMAIL", "PHONE")
"""The columns of the data. `EXTERN_ID` finds a user for removal whose address is gone or has changed."""
_LIMITED: Final = frozenset({1, 2, 4, 17, 32, 341, 368, 613, 80003, 80014})
"""Codes of errors that pass: of the service, and of its limits. Their status is often 400."""
_ENDED: Final = frozenset({10, 102, 190, 200, 294})
"""Codes of errors of the access token and of its permissions."""


class Meta:
    """A segment is a custom audience. Users are added with `POST` and removed with `DELETE`."""

    name = "Meta"
    max_changes = MOST_USERS

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """`settings`: those of the target, with plain secrets."""
        self._base_url = (settings.get("base_url") or DEFAULT_URL).rstrip("/")
        self._audiences = settings["audiences"]
        self._headers = {"content-type": JSON_TYPE, "authorization": f"Bearer {settings['token']}"}

    def has_identifier(self, change: Change) -> bool:
        """Return whether the user has an address or a number. For removal the user id is enough."""
        return change.email is not None or change.phone is not None or not change.is_member

    def requests(self, changes: Sequence[Change]) -> list[AudienceRequest]:
        """Return requests of one audience and one direction each."""
        return [
            AudienceRequest(
                "POST" if is_member else "DELETE",
                f"{self._base_url}/{self._audiences[segment]}/users",
                self._headers,
                to_json({"payload": {"schema": SCHEMA, "data": [_row(change) for change in some]}}),
                [[change] for change in some],
            )
            for (segment, is_member), found in by_segment(changes).items()
            for some in chunks(found, MOST_USERS)
        ]

    def read(self, request: AudienceRequest, response: Response) -> Result:
        """Return the result. Meta reports how many rows are invalid, and samples of them; it names no row."""
        body = response.json()
        body = body if isinstance(body, dict) else {}
        error = body.get("error")
        error = error if isinstance(error, dict) else {}
        code, detail = error.get("code"), text_of(error.get("message"))
        if response.status >= 400 and type(code) is int:
            why = f"Meta answered {response.status}, code {code}: {detail}"
            if code in _LIMITED:
                return Again(why, response.retry_after_seconds)
            if code in _ENDED:
                return Ended(why)
        result = result_of_status(self.name, response, detail)
        return result or Taken(_rejected(request, body))


def _rejected(request: AudienceRequest, body: Mapping[str, Any]) -> dict[int, str]:
    """Return the rows that the samples of invalid entries contain, and every row if all of them are invalid."""
    samples, invalid = body.get("invalid_entry_samples"), body.get("num_invalid_entries")
    why = "Meta reports an invalid entry"
    if type(invalid) is int and invalid >= len(request.entries) > 0:
        return dict.fromkeys(range(len(request.entries)), why)
    texts = [str(value) for value in samples.values()] if isinstance(samples, dict) else [str(one) for one in samples or ()]
    found = {}
    for index, (change,) in enumerate(request.entries):
        hashes = [value for value in _row(change) if value]
        if any(value in text for text in texts for value in hashes):
            found[index] = why
    return found


def _row(change: Change) -> list[str]:
    phone = None if change.phone is None else change.phone.removeprefix("+")
    return [sha256_hex(change.user_id), *("" if value is None else sha256_hex(value) for value in (change.email, phone))]
