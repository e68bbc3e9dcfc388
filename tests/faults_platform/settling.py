"""Waits until everything is processed, although the API may be starting again."""

import time

from starling_cli.api_client import ApiRefused
from starling_cli.commands.common import pipeline_of
from starling_cli.settle.settle import settle
from starling_local.instance import Instance


def settle_through_restarts(instance: Instance, seconds: float) -> None:
    """Return when every stage has processed its input. Raises: NotSettled, ApiRefused after that time."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            with pipeline_of(instance) as pipeline:
                settle(pipeline, max(1.0, deadline - time.monotonic()))
        except ApiRefused:
            if time.monotonic() >= deadline:
                raise
            time.sleep(1)
        else:
            return
