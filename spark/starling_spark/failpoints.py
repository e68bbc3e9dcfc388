"""Adapter: the failpoint of a Spark job, in its driver and in its Python workers. Inactive unless the settings name one."""

import os
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from starling_common.failpoints.raising import Raising

T = TypeVar("T")

_VARIABLE: Final = "STARLING_FAILPOINT"


def worker_config(failpoint: str | None) -> Mapping[str, str]:
    """Return the Spark settings with which the workers have the failpoint of the driver."""
    return {} if failpoint is None else {f"spark.executorEnv.{_VARIABLE}": failpoint}


def raising() -> Raising | None:
    """Return the failpoint of this process that raises; None without one."""
    return Raising.of(os.environ.get(_VARIABLE))


def raising_before(point: str, decode: Callable[[bytes], T]) -> Callable[[bytes], T]:
    """Return `decode`, which passes the point first if the process has a failpoint."""
    armed = raising()
    return decode if armed is None else armed.before(point, decode)
