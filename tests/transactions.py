"""Waiting for the end of transactions."""

import time
from collections.abc import Collection

from starling_cli.settle.broker import Offsetter

_MARKER_PAUSE_SECONDS = 0.02


def until_markers_are_written(brokers: str, topics: Collection[str], *, timeout_seconds: float = 60.0) -> None:
    """Return once no transaction is open in the topics; a commit returns before its markers are in all partitions.

    Raises: TimeoutError.
    """
    deadline = time.monotonic() + timeout_seconds
    with Offsetter(brokers) as offsets:
        partitions = offsets.partitions(topics)
        while offsets.ends(partitions) != offsets.high_watermarks(partitions):
            if time.monotonic() > deadline:
                raise TimeoutError(f"a transaction in {', '.join(topics)} is still open after {timeout_seconds:g} s")
            time.sleep(_MARKER_PAUSE_SECONDS)
