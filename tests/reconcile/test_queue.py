"""The work queue: once at a time, never twice, the earliest time wins."""

from __future__ import annotations

import asyncio

import pytest

from taintctl.reconcile.queue import WorkQueue

pytestmark = pytest.mark.looptime


async def test_a_key_added_twice_is_worked_on_once() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    queue.add("a")
    assert await queue.get() == "a"
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(queue.get(), 1)


async def test_a_key_added_while_it_is_worked_on_comes_again_only_after_it_is_done() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    await queue.get()
    queue.add("a")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(queue.get(), 1)
    queue.done("a")
    assert await asyncio.wait_for(queue.get(), 1) == "a"


async def test_a_delayed_key_comes_when_it_is_due() -> None:
    queue: WorkQueue[str] = WorkQueue()
    start = asyncio.get_running_loop().time()
    queue.add("a", 30)
    assert await queue.get() == "a"
    assert asyncio.get_running_loop().time() - start == pytest.approx(30)


async def test_the_earlier_of_two_delays_wins_whatever_the_order() -> None:
    loop = asyncio.get_running_loop()
    for delays in ((30, 5), (5, 30)):
        queue: WorkQueue[str] = WorkQueue()
        start = loop.time()
        for delay in delays:
            queue.add("a", delay)
        assert await queue.get() == "a"
        assert loop.time() - start == pytest.approx(5)
        queue.done("a")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(queue.get(), 60)


async def test_a_key_added_now_needs_no_timer_any_more() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a", 30)
    queue.add("a")
    assert await queue.get() == "a"
    queue.done("a")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(queue.get(), 60)


async def test_a_closed_queue_fires_no_timer() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a", 5)
    queue.close()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(queue.get(), 60)
