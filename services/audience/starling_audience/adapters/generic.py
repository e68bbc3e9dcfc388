"""Pure core: any system that takes JSON over HTTP, signed according to Standard Webhooks 1.0."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from starling_audience.adapters.adapter import (
    AudienceRequest,
    Response,
    Result,
    Taken,
    chunks,
    result_of_status,
    text_of,
    to_json,
)
from starling_audience.changes import Change
from starling_common.http.outbound.signatures import signed_headers
from starling_common.time.instants import format_instant, wall_clock_ms
from starling_common.values import deterministic_id

MOST_ITEMS: Final = 10_000
TYPE: Final = "audience.changed"


class Generic:
    """One item for each user and segment. The `webhook-id` depends on the items alone, so a repetition has the same one."""

    name = "the endpoint"
    max_changes = MOST_ITEMS

    def __init__(self, settings: Mapping[str, Any], key: str, now_ms: Callable[[], int] = wall_clock_ms) -> None:
        """`settings`: those of the target, with plain secrets. `key`: that of the target."""
        self._url = settings["url"]
        self._secret = settings["secret"]
        self._own = dict(settings.get("headers") or {})
        self._key = key
        self._now_ms = now_ms

    def has_identifier(self, change: Change) -> bool:
        """Return true: the item has the user id."""
        return bool(change.user_id)

    def requests(self, changes: Sequence[Change]) -> list[AudienceRequest]:
        """Return requests with one item for each change."""
        return [self._request(some) for some in chunks(changes, MOST_ITEMS)]

    def _request(self, changes: Sequence[Change]) -> AudienceRequest:
        items = [
            {
                "user_id": change.user_id,
                "segment": change.segment,
                "member": change.is_member,
                "sequence": change.sequence,
                "effective_at": format_instant(change.effective_at),
            }
            for change in changes
        ]
        body = to_json({"type": TYPE, "target": self._key, "items": items})
        now_ms = self._now_ms()
        message_id = deterministic_id("audience", self._key, body.decode("utf-8", "surrogatepass"))
        headers = {**self._own, **signed_headers([self._secret], message_id, body.decode("utf-8", "surrogatepass"), now_ms)}
        return AudienceRequest("POST", self._url, headers, body, [[change] for change in changes])

    def read(self, request: AudienceRequest, response: Response) -> Result:
        """Return the result. The body of a 2xx may have `errors`: the `index` and the `message` of each item that was not taken."""
        body = response.json()
        errors = body.get("errors") if isinstance(body, dict) else None
        found: dict[int, str] = {}
        for error in errors if isinstance(errors, list) else ():
            index = error.get("index") if isinstance(error, dict) else None
            if type(index) is int and 0 <= index < len(request.entries):
                found[index] = text_of(error.get("message")) or "an error without a message"
        return result_of_status(self.name, response) or Taken(found)
