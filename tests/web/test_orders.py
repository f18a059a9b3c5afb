"""Orders that a browser sends again: each is performed once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.requests import Request

from holdfast.results.steering_client import CannotSteer
from holdfast.web import app
from holdfast.web.app import OrdersOnce

pytestmark = pytest.mark.anyio


def request(key: str, experiment: str = "run") -> Request:
    headers = [(b"idempotency-key", key.encode())] if key else []
    scope: dict[str, Any] = {"type": "http", "headers": headers}
    return Request({**scope, "path_params": {"key": experiment}})


class Run:
    """Counts its orders; each is performed when `may_answer` is set."""

    def __init__(self) -> None:
        self.count = 0
        self.may_answer = asyncio.Event()

    async def perform(self) -> str:
        self.count += 1
        number = self.count
        await self.may_answer.wait()
        return f"order {number}"


async def test_one_that_comes_again_before_the_first_answer_gets_that() -> None:
    once, run = OrdersOnce(), Run()
    sent = [asyncio.ensure_future(once.perform(request("a"), run.perform)) for _ in range(3)]
    await asyncio.sleep(0)
    run.may_answer.set()
    assert await asyncio.gather(*sent) == ["order 1"] * 3
    assert await once.perform(request("a"), run.perform) == "order 1"
    assert await once.perform(request("b"), run.perform) == "order 2"
    assert await once.perform(request("a", "another run"), run.perform) == "order 3"
    assert await once.perform(request(""), run.perform) == "order 4"


async def test_one_that_is_given_up_ends_no_other() -> None:
    once, run = OrdersOnce(), Run()
    first = asyncio.ensure_future(once.perform(request("a"), run.perform))
    await asyncio.sleep(0)
    again, given_up = (
        asyncio.ensure_future(once.perform(request("a"), run.perform)) for _ in range(2)
    )
    await asyncio.sleep(0)
    given_up.cancel()
    run.may_answer.set()
    assert await first == await again == "order 1"


async def test_what_the_first_raises_all_raise() -> None:
    once = OrdersOnce()

    async def refuses() -> str:
        raise CannotSteer("no process runs it")

    for _ in range(2):
        with pytest.raises(CannotSteer, match="no process"):
            await once.perform(request("a"), refuses)


async def test_it_knows_the_last_thousand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "_MOST_KEYS", 2)
    once, run = OrdersOnce(), Run()
    run.may_answer.set()
    for key in ("a", "b", "c", "b"):
        await once.perform(request(key), run.perform)
    assert run.count == 3
    await once.perform(request("a"), run.perform)
    assert run.count == 4
