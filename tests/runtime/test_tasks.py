"""The task group of a run: errors end the run, and no task outlives it."""

from __future__ import annotations

import asyncio
import gc

import pytest

from holdfast.runtime.tasks import RunTasks

pytestmark = pytest.mark.anyio


async def never() -> None:
    await asyncio.get_running_loop().create_future()


async def fails() -> None:
    raise ValueError("oh no")


async def test_what_a_task_raises_is_the_runs_fault_and_cancels_no_other() -> None:
    async with RunTasks() as tasks:
        other = tasks.start(never())
        await asyncio.wait([tasks.start(fails()), tasks.ended])
        assert str(tasks.fault) == "oh no"
        assert not other.done()
    assert other.cancelled()


async def test_a_task_in_which_user_code_exits_is_a_failure_like_any_other() -> None:
    async def exits() -> None:
        raise SystemExit(3)

    async with RunTasks() as tasks:
        other = tasks.start(never())
        await asyncio.wait([tasks.start(exits()), tasks.ended])
        assert isinstance(tasks.fault, SystemExit)
        assert not other.done()


async def test_what_a_callback_of_the_loop_raises_is_the_runs_fault() -> None:
    def fail() -> None:
        raise ValueError("oh no")

    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()
    async with RunTasks() as tasks:
        loop.call_soon(fail)
        await tasks.ended
    assert str(tasks.fault) == "oh no"
    assert loop.get_exception_handler() == before


async def test_the_first_fault_counts() -> None:
    async with RunTasks() as tasks:
        tasks.fail(KeyError("first"))
        tasks.fail(ValueError("second"))
    assert isinstance(tasks.fault, KeyError)


async def test_a_wait_for_something_ends_with_the_fault_that_makes_it_impossible() -> None:
    async with RunTasks() as tasks:
        never_ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        tasks.start(fails())
        with pytest.raises(ValueError, match="oh no"):
            await tasks.until(never_ready)


async def test_a_scope_ends_its_own_tasks_and_those_that_are_started_later() -> None:
    async with RunTasks() as tasks:
        other, scope = tasks.start(never()), tasks.scope()
        called: list[str] = []
        begun = scope.start(never())
        scope.later(0, called.append, "late")
        scope.cancel()
        later = scope.start(never())
        await asyncio.wait([begun, later])
        assert begun.cancelled()
        assert later.cancelled()
        assert not other.done()
        assert called == []
    gc.collect()  # a coroutine that was never awaited would warn here


async def test_a_scope_may_have_its_own_way_with_failures() -> None:
    heard: list[BaseException] = []
    async with RunTasks() as tasks:
        await asyncio.wait([tasks.scope(fail=heard.append).start(fails())])
        assert tasks.fault is None
    assert [str(error) for error in heard] == ["oh no"]


async def test_what_the_body_raises_leaves_the_group_as_it_is() -> None:
    children: list[asyncio.Task[None]] = []

    async def body() -> None:
        async with RunTasks() as tasks:
            children.append(tasks.scope().start(never()))
            raise KeyError("body")

    with pytest.raises(KeyError):
        await body()
    assert children[0].cancelled()


async def test_something_is_done_later() -> None:
    async with RunTasks() as tasks:
        tasks.later(0.001, tasks.finish)
        async with asyncio.timeout(60):
            await asyncio.wait([tasks.ended])
