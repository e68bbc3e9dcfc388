"""The retry policy: what is retried, until when, and how its wait is ended."""

import asyncio

import pytest

from starling_common import retries
from starling_common.retries import retrying, retrying_async


class Away(Exception):
    """What is called does not answer yet."""


class Called:
    """Fails a number of times."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.calls = 0

    def __call__(self) -> int:
        self.calls += 1
        if self.calls <= self.failures:
            raise Away
        return self.calls


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "_WAITS", {"wait_initial": 0.0, "wait_max": 0.0, "wait_jitter": 0.0})


@pytest.mark.usefixtures("soon")
def test_there_is_no_limit_of_attempts() -> None:
    assert retrying(None)(Away, Called(50)) == 51


@pytest.mark.usefixtures("soon")
def test_another_error_is_raised_at_once() -> None:
    called = Called(1)
    with pytest.raises(Away):
        retrying(None)(KeyError, called)
    assert called.calls == 1


@pytest.mark.usefixtures("soon")
def test_after_the_timeout_the_last_error_is_raised() -> None:
    with pytest.raises(Away):
        retrying(0.01)(Away, Called(10**9))


def test_a_cancellation_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "_WAITS", {"wait_initial": 3600.0, "wait_max": 3600.0, "wait_jitter": 0.0})

    async def stopped() -> None:
        called, failed = Called(1), asyncio.Event()

        async def call() -> int:
            failed.set()
            return called()

        task = asyncio.create_task(retrying_async(None)(Away, call))
        await failed.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(stopped())
