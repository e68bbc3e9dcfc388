"""Pure core: what can be said instead of doing what was asked. `problems.py` knows their HTTP status."""

from collections.abc import Sequence


class ApiError(Exception):
    """`code` is stable; the message says what is wrong and what would be right."""

    code = "failed"


class Unauthenticated(ApiError):
    """No token, or none of ours."""

    code = "unauthorized"


class Forbidden(ApiError):
    """The token's role may not do this."""

    code = "forbidden"


class NotFound(ApiError):
    """There is no such thing."""

    def __init__(self, what: str, key: str) -> None:
        super().__init__(f"there is no {what} {key!r} in this workspace")
        self.code = f"unknown_{what.replace(' ', '_')}"


class BadRequest(ApiError):
    """The request itself makes no sense."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class TooLarge(ApiError):
    """The body is larger than any definition."""

    code = "too_large"


class VersionConflict(ApiError):
    """Somebody else was faster."""

    code = "version_conflict"

    def __init__(self, key: str, version: int) -> None:
        super().__init__(f"{key!r} is at version {version}: read it again, then decide")
        self.version = version


class Archived(ApiError):
    """What is archived stays as it is."""

    code = "archived"


class InUse(ApiError):
    """Others depend on it."""

    code = "in_use"

    def __init__(self, key: str, users: Sequence[str]) -> None:
        super().__init__(f"{key!r} is used by {', '.join(users)}: change or archive these first")
        self.users = tuple(users)


class IdempotencyKeyReused(ApiError):
    """Same key, another request."""

    code = "idempotency_key_reused"


class AtWork(ApiError):
    """The same thing is being done right now; ask again in a moment."""

    code = "at_work"


class NotYet(ApiError):
    """A later version of the product does this."""

    code = "not_yet"


class CursorExpired(ApiError):
    """The records after this cursor are not kept any more."""

    code = "cursor_expired"


class TooManyStreams(ApiError):
    """This process streams to as many as it may."""

    code = "too_many_streams"


class NotTakenOver(ApiError):
    """The segmenter has not worked out the newest version yet; ask again in a moment."""

    code = "backfilling"


class BackfillEnded(ApiError):
    """What is over can be turned no more."""

    code = "backfill_ended"
