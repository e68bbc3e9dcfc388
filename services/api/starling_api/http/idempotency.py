"""Core: idempotency keys. A repeated write returns the stored response of the first one."""

from collections.abc import Callable
from typing import Final

from starling_api.http.errors import BadRequest, IdempotencyKeyReused, ResourceBusy
from starling_api.ports import Answers, Stored

MAX_KEY_CHARACTERS: Final = 255


def answer_once(
    answers: Answers, workspace: str, idempotency_key: str | None, fingerprint: str, act: Callable[[], Stored]
) -> Stored:
    """Return the stored response of the key, or the response of `act`. Only successful responses are stored.

    Raises: IdempotencyKeyReused, ResourceBusy, BadRequest, and the errors of `act`.
    """
    if idempotency_key is None:
        return act()
    if not 0 < len(idempotency_key) <= MAX_KEY_CHARACTERS:
        raise BadRequest("bad_idempotency_key", f"Idempotency-Key must have 1 to {MAX_KEY_CHARACTERS} characters")
    first = answers.reserve(workspace, idempotency_key, fingerprint)
    if first is not None:
        return _repeated(first, fingerprint)
    try:
        answer = act()
    except Exception:
        answers.release(workspace, idempotency_key)
        raise
    answers.store(workspace, idempotency_key, fingerprint, answer)
    return answer


def _repeated(first: tuple[str, Stored], fingerprint: str) -> Stored:
    found, answer = first
    if found != fingerprint:
        raise IdempotencyKeyReused("this Idempotency-Key was used for another request: use a new one")
    if answer.status == 0:
        raise ResourceBusy("the first request with this Idempotency-Key is still in progress: retry after a second")
    return answer
