"""Pure core: Customer.io: a boolean attribute for each segment, through `/api/v2/batch` of the Track API."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Final

from starling_audience.adapters.adapter import (
    JSON_TYPE,
    AudienceRequest,
    Response,
    Result,
    Taken,
    by_user,
    chunks,
    result_of_status,
    text_of,
    to_json,
)
from starling_audience.changes import Change

DEFAULT_URL: Final = "https://track.customer.io"
DEFAULT_ATTRIBUTE: Final = "starling_"
_MOST_BYTES: Final = 480_000
"""Bytes of the elements of one request. Customer.io takes 500 KB."""
_MOST_ELEMENTS: Final = 1_000
_MOST_CHANGES: Final = 4_000


class CustomerIo:
    """The attribute `starling_<segment>` of the person is true for a member, and false after that."""

    name = "Customer.io"
    max_changes = _MOST_CHANGES

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """`settings`: those of the target, with plain secrets."""
        self._url = f"{(settings.get('base_url') or DEFAULT_URL).rstrip('/')}/api/v2/batch"
        self._attribute = settings.get("attribute") or DEFAULT_ATTRIBUTE
        credentials = base64.b64encode(f"{settings['site_id']}:{settings['api_key']}".encode()).decode()
        self._headers = {"content-type": JSON_TYPE, "authorization": f"Basic {credentials}"}

    def has_identifier(self, change: Change) -> bool:
        """Return true: the user id is the id of the person."""
        return bool(change.user_id)

    def requests(self, changes: Sequence[Change]) -> list[AudienceRequest]:
        """Return requests with one operation for each person."""
        made = [(of_user, to_json(self._operation(of_user))) for of_user in by_user(changes)]
        return [
            AudienceRequest(
                "POST",
                self._url,
                self._headers,
                b'{"batch":[' + b",".join(operation for _, operation in some) + b"]}",
                [of_user for of_user, _ in some],
            )
            for some in chunks(made, _MOST_ELEMENTS, _MOST_BYTES, lambda one: len(one[1]) + 1)
        ]

    def _operation(self, changes: Sequence[Change]) -> dict[str, Any]:
        return {
            "type": "person",
            "identifiers": {"id": changes[0].user_id},
            "action": "identify",
            "attributes": {f"{self._attribute}{change.segment}": change.is_member for change in changes},
        }

    def read(self, request: AudienceRequest, response: Response) -> Result:
        """Return the result. 207 has the errors of single operations."""
        body = response.json()
        errors = body.get("errors") if isinstance(body, dict) else None
        errors = [one for one in errors if isinstance(one, dict)] if isinstance(errors, list) else []
        first = text_of(errors[0].get("message") or errors[0].get("reason")) if errors else ""
        result = result_of_status(self.name, response, first)
        return result or Taken(_rejected(errors, len(request.entries)))


def _rejected(errors: Sequence[Mapping[str, Any]], count: int) -> dict[int, str]:
    found: dict[int, str] = {}
    for error in errors:
        index = error.get("batch_index")
        if type(index) is int and 0 <= index < count:
            parts = (text_of(error.get(name)) for name in ("field", "reason", "message"))
            found[index] = ": ".join(part for part in parts if part) or "an error without a reason"
    return found
