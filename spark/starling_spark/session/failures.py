"""Pure core: the reason of a failed query in one line, and whether the same query may succeed."""

from typing import Final

from py4j.protocol import Py4JJavaError

_MOST: Final = 1_000
_LATE: Final = "Python worker failed to connect back"


def first_cause(error: Exception) -> str:
    """Return the first cause of an error of Spark, without the plan and the stack that follow it."""
    first: Exception = error
    while isinstance(cause := getattr(first, "_cause", None), Exception):
        first = cause
    text = str(first.java_exception.toString() if isinstance(first, Py4JJavaError) else first).strip()
    return (text or type(first).__name__).splitlines()[0][:_MOST]


def is_late_worker(error: Exception) -> bool:
    """Return whether Spark did not wait for a Python process that it had started.

    Spark 4.1 waits 10 s (`PythonWorkerFactory.createSimpleWorker`), and no option changes that. On a busy machine Python and
    its libraries take longer to start.
    """
    return _LATE in str(error)
