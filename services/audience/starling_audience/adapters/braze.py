"""Pure core: Braze: a boolean custom attribute for each segment, through `/users/track`."""

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

MOST_USERS: Final = 75
"""Attribute objects in one request."""
_MOST_CHANGES: Final = 600
DEFAULT_ATTRIBUTE: Final = "starling_"


class Braze:
    """The attribute `starling_<segment>` of the user is true for a member, and false after that."""

    name = "Braze"
    max_changes = _MOST_CHANGES

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """`settings`: those of the target, with plain secrets."""
        self._url = f"{settings['base_url'].rstrip('/')}/users/track"
        self._attribute = settings.get("attribute") or DEFAULT_ATTRIBUTE
        self._headers = {"content-type": JSON_TYPE, "authorization": f"Bearer {settings['api_key']}"}

    def has_identifier(self, change: Change) -> bool:
        """Return true: the user id is the external id of Braze."""
        return bool(change.user_id)

    def requests(self, changes: Sequence[Change]) -> list[AudienceRequest]:
        """Return requests with one object for each user."""
        return [
            AudienceRequest(
                "POST", self._url, self._headers, to_json({"attributes": [self._object(of_user) for of_user in users]}), users
            )
            for users in chunks(by_user(changes), MOST_USERS)
        ]

    def _object(self, changes: Sequence[Change]) -> dict[str, Any]:
        found: dict[str, Any] = {"external_id": changes[0].user_id}
        if not any(change.is_member for change in changes):
            # A user of whom Braze knows nothing is in no audience, and is not created to be left out.
            found["_update_existing_only"] = True
        return found | {f"{self._attribute}{change.segment}": change.is_member for change in changes}

    def read(self, request: AudienceRequest, response: Response) -> Result:
        """Return the result. A request that is taken can have errors of single objects."""
        body = response.json()
        body = body if isinstance(body, dict) else {}
        result = result_of_status(self.name, response, text_of(body.get("message")))
        return result or Taken(_rejected(body.get("errors"), len(request.entries)))


def _rejected(errors: object, count: int) -> dict[int, str]:
    found: dict[int, str] = {}
    for error in errors if isinstance(errors, list) else ():
        if not isinstance(error, dict) or error.get("input_array", "attributes") != "attributes":
            continue
        index = error.get("index")
        if type(index) is int and 0 <= index < count:
            found[index] = text_of(error.get("type")) or "an error without a type"
    return found
