"""Adapter: the retry policy for a broker, a registry or a database that is unavailable.

A retry waits 0.1 s at first, then twice as long each time, up to 5 s, with jitter. `stamina` logs each retry. The first argument of
the returned callers is what to retry: exception types, or a function from the exception to whether it is retried.

A thread that has to end at once when its process stops waits on its stop event instead: nothing ends the wait of a blocking retry.
"""

from typing import Any, Final

import stamina

_WAITS: Final[dict[str, float]] = {"wait_initial": 0.1, "wait_max": 5.0, "wait_jitter": 0.5}


def retrying(timeout_seconds: float | None) -> stamina.RetryingCaller:
    """Return a caller of blocking functions; after the timeout (None: never, 0: one attempt) it raises the last error."""
    return stamina.RetryingCaller(**_policy(timeout_seconds))


def retrying_async(timeout_seconds: float | None) -> stamina.AsyncRetryingCaller:
    """Return a caller of coroutine functions. A cancellation ends its wait."""
    return stamina.AsyncRetryingCaller(**_policy(timeout_seconds))


def _policy(timeout_seconds: float | None) -> dict[str, Any]:
    once = timeout_seconds == 0
    return {"attempts": 1 if once else None, "timeout": None if once else timeout_seconds, **_WAITS}
