"""Waiting with a timeout: signals that do not fulfil the condition do not prolong it."""

import asyncio
import threading
import time

import pytest

from smile.client import asynchronous, synchronous
from smile.client.feed import CallbackRegistry
from smile.errors import SmileError

TIMEOUT_S = 0.2


def fire_repeatedly(signal: CallbackRegistry, stop: threading.Event) -> None:
    while not stop.wait(TIMEOUT_S / 10):
        signal.fire()


def test_a_thread_stops_waiting_at_its_timeout() -> None:
    signal, stop = CallbackRegistry(), threading.Event()
    thread = threading.Thread(target=fire_repeatedly, args=(signal, stop))
    thread.start()
    start = time.monotonic()
    deadline = start + 20 * TIMEOUT_S
    try:
        with pytest.raises(SmileError, match=r"the test took longer than 0\.2 s"):
            synchronous.wait_until(signal, lambda: time.monotonic() > deadline, TIMEOUT_S, "the test")
    finally:
        stop.set()
        thread.join()
    assert time.monotonic() - start >= TIMEOUT_S


async def fire_and_wait() -> None:
    signal = CallbackRegistry()

    async def fire() -> None:
        while True:
            await asyncio.sleep(TIMEOUT_S / 10)
            signal.fire()

    task = asyncio.create_task(fire())
    try:
        await asynchronous.wait_until(signal, lambda: False, TIMEOUT_S, "the test")
    finally:
        task.cancel()


def test_a_task_stops_waiting_at_its_timeout() -> None:
    with pytest.raises(SmileError, match=r"the test took longer than 0\.2 s"):
        asyncio.run(fire_and_wait())
