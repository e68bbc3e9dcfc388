"""Pure core: Google: members of Customer Match audiences, through the Data Manager API, as SHA-256."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from starling_audience.adapters.adapter import (
    JSON_TYPE,
    Again,
    AudienceRequest,
    Refused,
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
from starling_audience.identifiers import sha256_hex, without_dots

DEFAULT_URL: Final = "https://datamanager.googleapis.com"
DEFAULT_TOKEN_URL: Final = "https://oauth2.googleapis.com/token"  # noqa: S105 - an address
SCOPE: Final = "https://www.googleapis.com/auth/datamanager"
DEFAULT_ACCOUNT_TYPE: Final = "GOOGLE_ADS"
MOST_USERS: Final = 10_000
_MEMBER: Final = re.compile(r"audience_?[mM]embers\[(\d+)\]")
_GRANTED: Final = "CONSENT_GRANTED"
_UNAUTHENTICATED: Final = 401


class Google:
    """A segment is an audience. Users are added by `audienceMembers:ingest` and removed by `audienceMembers:remove`.

    The sender adds the access token.
    """

    name = "Google"
    max_changes = MOST_USERS

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """`settings`: those of the target, with plain secrets."""
        self._base_url = (settings.get("base_url") or DEFAULT_URL).rstrip("/")
        self._audiences = settings["audiences"]
        self._account = {
            "accountType": settings.get("account_type") or DEFAULT_ACCOUNT_TYPE,
            "accountId": settings["account_id"],
        }
        login = settings.get("login_account_id")
        self._login = login and {
            "accountType": settings.get("login_account_type") or self._account["accountType"],
            "accountId": login,
        }

    def has_identifier(self, change: Change) -> bool:
        """Return whether the user has an address or a number, which Google needs for removal too."""
        return change.email is not None or change.phone is not None

    def requests(self, changes: Sequence[Change]) -> list[AudienceRequest]:
        """Return requests of one audience and one direction each."""
        return [
            AudienceRequest(
                "POST",
                f"{self._base_url}/v1/audienceMembers:{'ingest' if is_member else 'remove'}",
                {"content-type": JSON_TYPE},
                to_json(self._body(segment, is_member, some)),
                [[change] for change in some],
            )
            for (segment, is_member), found in by_segment(changes).items()
            for some in chunks(found, MOST_USERS)
        ]

    def _body(self, segment: str, is_member: bool, changes: Sequence[Change]) -> dict[str, Any]:
        destination = {"operatingAccount": self._account, "productDestinationId": self._audiences[segment]}
        body: dict[str, Any] = {
            "destinations": [destination | ({"loginAccount": self._login} if self._login else {})],
            "audienceMembers": [{"userData": {"userIdentifiers": _identifiers(change)}} for change in changes],
            "encoding": "HEX",
        }
        if is_member:
            # Only users who consent, or whose workspace declares their consent, are added.
            body["consent"] = {"adUserData": _GRANTED, "adPersonalization": _GRANTED}
            body["termsOfService"] = {"customerMatchTermsOfServiceStatus": "ACCEPTED"}
        return body

    def read(self, request: AudienceRequest, response: Response) -> Result:
        """Return the result. A request with an invalid member is refused whole; the answer names the members."""
        body = response.json()
        error = body.get("error") if isinstance(body, dict) else None
        error = error if isinstance(error, dict) else {}
        detail = text_of(error.get("message"))
        if response.status == _UNAUTHENTICATED and error.get("status") == "UNAUTHENTICATED" and _is_expired(error):
            return Again(f"Google answered 401: {detail}")
        result = result_of_status(self.name, response, detail)
        if isinstance(result, Refused):
            return Refused(result.why, _rejected(error, len(request.entries)))
        return result or Taken()


def _is_expired(error: Mapping[str, Any]) -> bool:
    """Return whether the access token has expired between its request and its use."""
    details = error.get("details")
    return any(isinstance(one, dict) and one.get("reason") == "ACCESS_TOKEN_EXPIRED" for one in details or ())


def _rejected(error: Mapping[str, Any], count: int) -> dict[int, str]:
    found: dict[int, str] = {}
    details = error.get("details")
    for detail in details if isinstance(details, list) else ():
        violations = detail.get("fieldViolations") if isinstance(detail, dict) else None
        for violation in violations if isinstance(violations, list) else ():
            if not isinstance(violation, dict):
                continue
            numbers = _MEMBER.findall(text_of(violation.get("field")))
            if numbers and int(numbers[-1]) < count:
                reason = text_of(violation.get("reason")) or text_of(violation.get("description")) or "an invalid member"
                found[int(numbers[-1])] = reason
    return found


def _identifiers(change: Change) -> list[dict[str, str]]:
    found = []
    if change.email is not None:
        found.append({"emailAddress": sha256_hex(without_dots(change.email))})
    if change.phone is not None:
        found.append({"phoneNumber": sha256_hex(change.phone)})
    return found
