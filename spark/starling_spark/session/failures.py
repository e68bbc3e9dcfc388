"""Pure core: the reason of a failed query in one line."""

from typing import Final

from py4j.protocol import Py4JJavaError

_MOST: Final = 1_000


def first_cause(error: Exception) -> str:
    """Return the first cause of an error of Spark, without the plan and the stack that follow it."""
    first: Exception = error
    while isinstance(cause := getattr(first, "_cause", None), Exception):
        first = cause
    text = str(first.java_exception.toString() if isinstance(first, Py4JJavaError) else first).strip()
    return (text or type(first).__name__).splitlines()[0][:_MOST]
