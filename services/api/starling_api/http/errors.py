"""Pure core: the errors of the API. `problems.py` maps them to HTTP statuses."""

from collections.abc import Sequence

from starling_segments import FieldError


class ApiError(Exception):
    """An error with a stable `code` and a message that names the cause and the cure."""

    code = "failed"


class Unauthenticated(ApiError):
    """The token is missing or unknown."""

    code = "unauthorized"


class TokensUnknown(ApiError):
    """The process has not read the created tokens yet, so a token that it does not know may be valid."""

    code = "not_ready"


class Forbidden(ApiError):
    """The role of the token is too low."""

    code = "forbidden"


class NotFound(ApiError):
    """There is no such resource."""

    def __init__(self, what: str, key: str) -> None:
        super().__init__(f"there is no {what} {key!r} in this workspace")
        self.code = f"unknown_{what.replace(' ', '_')}"


class BadRequest(ApiError):
    """The request is malformed."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class TooLarge(ApiError):
    """The body is too large."""

    code = "too_large"


class BodyTimeout(ApiError):
    """The body did not arrive in time."""

    code = "body_timeout"


class BadImport(BadRequest):
    """The body is no import. `errors`: all validation errors; the code is that of the first one."""

    def __init__(self, errors: Sequence[FieldError]) -> None:
        super().__init__(errors[0].code, "; ".join(f"{one.pointer or '/'}: {one.message}: {one.expected}" for one in errors))
        self.errors = tuple(errors)


class ReadOnly(ApiError):
    """The body changes read-only fields."""

    code = "read_only"

    def __init__(self, errors: Sequence[FieldError]) -> None:
        super().__init__("; ".join(f"{one.pointer}: {one.message}" for one in errors))
        self.errors = tuple(errors)


class VersionConflict(ApiError):
    """Another request changed the definition first."""

    code = "version_conflict"

    def __init__(self, key: str, revision: int) -> None:
        super().__init__(f"{key!r} is at revision {revision}: read it again and repeat the change")
        self.revision = revision


class Archived(ApiError):
    """An archived definition cannot change."""

    code = "archived"


class FrozenField(ApiError):
    """The body changes fields that are frozen after the activation of a campaign."""

    code = "frozen_field"

    def __init__(self, errors: Sequence[FieldError]) -> None:
        super().__init__("; ".join(f"{one.pointer or '/'}: {one.message}" for one in errors))
        self.errors = tuple(errors)


class NotActivated(ApiError):
    """The campaign is a draft, which cannot be paused or resumed."""

    code = "not_activated"


class MessengerBehind(ApiError):
    """The campaign is active, and the messenger does not have it in every partition yet."""

    code = "messenger_behind"

    def __init__(self, partitions: Sequence[int]) -> None:
        super().__init__(
            f"the campaign is active, and partitions {', '.join(map(str, partitions))} of the messenger do not have it yet: "
            "a worker is starting or has stopped; send the request again, or start starling-messenger"
        )


class InUse(ApiError):
    """Segments, campaigns or statements in SQL use the definition."""

    code = "in_use"

    def __init__(self, key: str, users: Sequence[str]) -> None:
        super().__init__(f"{key!r} is used by {', '.join(users)}: change or archive these first")
        self.users = tuple(users)


class CredentialEnded(ApiError):
    """A revoked (`revoked`) or expired (`expired`) token or write key cannot change."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class IdempotencyKeyReused(ApiError):
    """The key was used for another request."""

    code = "idempotency_key_reused"


class ResourceBusy(ApiError):
    """Another request is changing the same resource."""

    code = "at_work"


class SecretsKeyMissing(ApiError):
    """The installation has no key for secrets, so it stores none."""

    code = "secrets_key_missing"


class SecretUnreadable(ApiError):
    """A stored secret cannot be decrypted."""

    code = "secret_unreadable"


class NotAvailable(ApiError):
    """The operation is not available yet."""

    code = "not_yet"


class HistoryOff(ApiError):
    """The installation stores no events of users."""

    code = "history_off"


class CursorExpired(ApiError):
    """The records after this cursor have been deleted."""

    code = "cursor_expired"


class TooManyStreams(ApiError):
    """The process has no stream left."""

    code = "too_many_streams"


class TooManyRequests(ApiError):
    """The workspace has too many expensive requests at the same time."""

    code = "too_many_requests"


class SegmentBackfilling(ApiError):
    """The segmenter has not applied the newest version yet."""

    code = "backfilling"


class ImportExists(ApiError):
    """Another import has the key."""

    code = "import_exists"


class ImportRunning(ApiError):
    """The import waits or runs."""

    code = "import_running"


class ImportEnded(ApiError):
    """The import has ended."""

    code = "import_ended"


class BackfillEnded(ApiError):
    """The backfill has ended."""

    code = "backfill_ended"
