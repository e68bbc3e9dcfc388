"""The loop of batches and a thread that reads history take turns with the processor."""

import asyncio
from threading import Event

import pytest

from starling_stream.worker.processor_lock import ProcessorLock


def test_the_loop_acquires_the_lock_while_a_thread_reads_on() -> None:
    lock, over, inside = ProcessorLock(), Event(), []

    def read() -> int:
        records = 0
        with lock.held():
            while not over.is_set():
                lock.give_way()
                inside.append("thread")
                records += 1
                assert inside == ["thread"]
                inside.clear()
        return records

    async def together() -> int:
        reading = asyncio.get_running_loop().run_in_executor(None, read)
        for _ in range(50):
            async with lock:
                assert not inside
            await asyncio.sleep(0)
        over.set()
        return await reading

    assert asyncio.run(asyncio.wait_for(together(), 60)) > 0


def test_the_loop_acquires_the_lock_while_a_thread_waits_for_the_broker() -> None:
    lock, answer, waiting = ProcessorLock(), Event(), Event()

    def read() -> None:
        with lock.held(), lock.released():
            waiting.set()
            assert answer.wait(60)

    async def together() -> None:
        reading = asyncio.get_running_loop().run_in_executor(None, read)
        await asyncio.to_thread(waiting.wait, 60)
        async with lock:
            answer.set()
        await reading

    asyncio.run(asyncio.wait_for(together(), 60))


def test_an_error_releases_the_lock() -> None:
    async def acquired(lock: ProcessorLock) -> bool:
        async with lock:
            return True

    lock = ProcessorLock()
    with pytest.raises(ZeroDivisionError), lock.held(), lock.released():
        _ = 1 / 0
    assert asyncio.run(asyncio.wait_for(acquired(lock), 60))
