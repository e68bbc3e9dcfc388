"""Core: one answer a key. A write that is repeated with the same Idempotency-Key is answered, not done again."""

from collections.abc import Callable
from typing import Final

from starling_api.http.errors import AtWork, BadRequest, IdempotencyKeyReused
from starling_api.ports import Answers, Stored

MAX_KEY_CHARACTERS: Final = 255


def answer_once(
    answers: Answers, workspace: str, idempotency_key: str | None, fingerprint: str, act: Callable[[], Stored]
) -> Stored:
    """Only what succeeded is kept: what was refused is judged anew.

    Raises: IdempotencyKeyReused, AtWork, BadRequest, and whatever `act` raises.
    """
    if idempotency_key is None:
        return act()
    if not 0 < len(idempotency_key) <= MAX_KEY_CHARACTERS:
        raise BadRequest("bad_idempotency_key", f"Idempotency-Key must have 1 to {MAX_KEY_CHARACTERS} characters")
    first = answers.reserve(workspace, idempotency_key, fingerprint)
    if first is not None:
        return _again(first, fingerprint)
    try:
        answer = act()
    except Exception:
        answers.release(workspace, idempotency_key)
        raise
    answers.keep(workspace, idempotency_key, fingerprint, answer)
    return answer


def _again(first: tuple[str, Stored], fingerprint: str) -> Stored:
    found, answer = first
    if found != fingerprint:
        raise IdempotencyKeyReused("this Idempotency-Key was used for another request: take a new one")
    if answer.status == 0:
        raise AtWork("the first request with this Idempotency-Key is still at work: ask again in a moment")
    return answer
