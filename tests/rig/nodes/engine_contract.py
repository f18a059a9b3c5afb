"""What every engine does, whatever it starts its agents with.

A test file of an engine inherits `EngineContract` and has a fixture `rig`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

import pytest

from holdfast.runtime.engines.engine import Engine, EngineFailed
from holdfast.runtime.engines.supplied import Times
from tests.rig.nodes.engine_host import FakeHost, fake_host
from tests.rig.workers.processes import PATIENCE_S, wait_for_end

CLOSE_S = 20.0


class EngineRig(Protocol):
    """Makes engines with two nodes at least, whose agents are `fake_agent.py`."""

    address: str  # where this machine is reached from its nodes

    def engine(self, *, python: Sequence[str] = (), answer_s: float = PATIENCE_S) -> Engine:
        """An engine whose second attempts follow soon. `python` is another command for the
        interpreter."""


def times_of(answer_s: float) -> Times:
    return Times(answer_s=answer_s, end_s=CLOSE_S, pause_s=0.05)


@asynccontextmanager
async def running(rig: EngineRig, engine: Engine) -> AsyncIterator[FakeHost]:
    """An open engine, which is closed at the end of a test."""
    async with fake_host(rig.address) as host:
        await engine.open(host)
        try:
            yield host
        finally:
            for link in host.alive:
                link.close()
            await engine.close(CLOSE_S)
        assert host.causes.keys() == host.invited.keys(), "each ticket has an end"
        assert not engine.processes()


def kind_of(engine: Engine) -> str:
    return engine.offer().kinds[0].name


async def refusal(rig: EngineRig, engine: Engine, count: int = 2) -> str:
    """Why the engine supplies no nodes."""
    async with fake_host(rig.address) as host:
        try:
            await engine.open(host)
            engine.want(kind_of(engine), count)
            return await host.refusal_of()
        except EngineFailed as error:
            return str(error)
        finally:
            await engine.close(CLOSE_S)


class EngineContract:
    """Each test of this class runs for each engine."""

    # Says nothing, and ends with its stdin.
    silent: Sequence[str] = ("sh", "-c", "exec cat >&2")

    async def test_it_supplies_the_nodes_that_are_wanted(self, rig: EngineRig) -> None:
        engine = rig.engine()
        async with running(rig, engine) as host:
            engine.want(kind_of(engine), 2)
            first, second = await host.agents(2)
            assert first.facts["ticket"] != second.facts["ticket"]
            host.assert_that_no_secret_shows()
            for link in (first, second):
                link.order("echo", "hello")
                assert await link.line() == "echo hello\n"
        for link in (first, second):
            wait_for_end(link.facts["pid"])

    async def test_wanting_the_same_again_changes_nothing(self, rig: EngineRig) -> None:
        engine = rig.engine()
        async with running(rig, engine) as host:
            kind = kind_of(engine)
            engine.want(kind, 1)
            engine.want(kind, 1)
            await host.agents(1)
            engine.want(kind, 1)
            assert len(host.invited) == 1
            engine.want(kind, 2)
            await host.agents(2)
            engine.want(kind, 0)
            assert len(host.alive) == 2

    async def test_a_node_that_is_given_back_ends_and_is_not_replaced(
        self, rig: EngineRig
    ) -> None:
        engine = rig.engine()
        async with running(rig, engine) as host:
            kind = kind_of(engine)
            engine.want(kind, 2)
            left, _ = await host.agents(2)
            engine.want(kind, 1)
            left.close()
            engine.give_back(left.facts["ticket"])
            await host.until(lambda: left.facts["ticket"] in host.causes)
            wait_for_end(left.facts["pid"])
            assert len(host.invited) == 2
            engine.want(kind, 2)  # its place is free
            await host.agents(2)
            assert len(host.invited) == 3

    async def test_an_agent_that_ends_is_told_once_with_its_last_lines_and_replaced(
        self, rig: EngineRig
    ) -> None:
        engine = rig.engine()
        async with running(rig, engine) as host:
            engine.want(kind_of(engine), 1)
            (link,) = await host.agents(1)
            link.order("exit", 7, "the", "disk", "is", "on", "fire")
            await host.until(lambda: link.facts["ticket"] in host.causes)
            await host.agents(1)
            cause = host.causes[link.facts["ticket"]]
            assert "7" in cause
            assert "the disk is on fire" in cause

    async def test_an_agent_that_is_killed_is_replaced(self, rig: EngineRig) -> None:
        engine = rig.engine()
        async with running(rig, engine) as host:
            engine.want(kind_of(engine), 1)
            (link,) = await host.agents(1)
            os.kill(link.facts["pid"], signal.SIGKILL)
            await host.until(lambda: link.facts["ticket"] in host.causes)
            (other,) = await host.agents(1)
            assert other.facts["ticket"] != link.facts["ticket"]
            assert not host.refusal

    async def test_a_command_that_does_not_exist_is_an_error_that_names_it(
        self, rig: EngineRig
    ) -> None:
        text = await refusal(rig, rig.engine(python=["no-such-python"]))
        assert "no-such-python" in text

    async def test_a_python_that_fails_is_an_error_with_its_last_lines(
        self, rig: EngineRig
    ) -> None:
        text = await refusal(
            rig, rig.engine(python=["sh", "-c", "echo cannot find libpython >&2; exit 4"])
        )
        assert "cannot find libpython" in text
        assert "4" in text

    async def test_an_agent_that_says_nothing_is_an_error_after_the_deadline(
        self, rig: EngineRig
    ) -> None:
        began = time.monotonic()
        engine = rig.engine(python=self.silent, answer_s=1.0)
        text = await refusal(rig, engine)
        assert time.monotonic() - began >= 1.0
        assert "within 1 s" in text

    async def test_an_agent_that_ignores_its_end_is_killed_when_the_engine_closes(
        self, rig: EngineRig
    ) -> None:
        engine = rig.engine()
        async with fake_host(rig.address) as host:
            await engine.open(host)
            engine.want(kind_of(engine), 1)
            (link,) = await host.agents(1)
            link.order("ignore")
            assert await link.line() == "ignore\n"
            warning = await engine.close(2.0)
            assert host.causes.keys() == host.invited.keys()
        self.check_stubborn(link.facts["pid"], warning)

    def check_stubborn(self, pid: int, warning: str) -> None:
        """The agent did not end by itself: it was killed, or a warning says that it may run."""
        assert warning == ""
        wait_for_end(pid)

    async def test_kill_ends_everything_at_once(self, rig: EngineRig) -> None:
        engine = rig.engine()
        async with fake_host(rig.address) as host:
            await engine.open(host)
            engine.want(kind_of(engine), 2)
            links = await host.agents(2)
            engine.kill()
            assert await engine.close(CLOSE_S) == ""
            assert host.causes.keys() == host.invited.keys()
        for link in links:
            wait_for_end(link.facts["pid"])

    async def test_close_during_a_start_leaves_nothing(self, rig: EngineRig) -> None:
        engine = rig.engine()
        async with fake_host(rig.address) as host:
            await engine.open(host)
            engine.want(kind_of(engine), 2)
            await asyncio.sleep(0)
            assert await engine.close(CLOSE_S) == ""
            assert host.causes.keys() == host.invited.keys()
        assert not engine.processes()


contract_marks = [pytest.mark.anyio, pytest.mark.process]
