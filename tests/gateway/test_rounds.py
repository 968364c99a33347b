"""Everybody who waits receives the result of their publication."""

import asyncio
from concurrent.futures import Future

import pytest

from smile.broker.publishing.publication import PublishResult
from smile.gateway.delivery_scheduler import PendingPublications
from tests.processes import WAIT_S


def test_one_who_fails_harms_no_other(caplog: pytest.LogCaptureFixture) -> None:
    delivered: list[int] = []

    def failing(_: Future[PublishResult]) -> None:
        raise ZeroDivisionError

    async def run() -> None:
        returns = PendingPublications(asyncio.get_running_loop())
        futures = [Future[PublishResult]() for _ in range(4)]
        for number, future in enumerate(futures):
            returns.add_callback(future, failing if number % 2 == 0 else lambda _, n=number: delivered.append(n))  # type: ignore[misc]
        waits = asyncio.create_task(returns.wait(futures[3]))
        await asyncio.sleep(0)
        for future in futures:
            future.set_result(PublishResult((), 0))
        assert await asyncio.wait_for(waits, WAIT_S) == PublishResult((), 0)
        assert returns.count == 0

    asyncio.run(run())
    assert delivered == [1, 3]
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [ZeroDivisionError] * 2
