"""Nodes whose agents are played by the test: what the fleet makes of each of their messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from holdfast.runtime.errors import LaunchFailed, NoNodes, WireError
from holdfast.runtime.fleet.facts import FleetSettings, Shared
from holdfast.runtime.fleet.fleet import Fleet
from holdfast.runtime.wire import Message
from tests.rig.nodes.fleets import FleetLog, Invitations, PlayedAgent, open_fleet, play
from tests.rig.workers.launcher_contract import start
from tests.rig.workers.processes import PATIENCE_S, Heard

pytestmark = pytest.mark.anyio


class Stage:
    """A fleet whose agents the test plays."""

    def __init__(self, fleet: Fleet, log: FleetLog, engine: Invitations) -> None:
        self.fleet, self.log, self.engine = fleet, log, engine
        self.opening = asyncio.ensure_future(fleet.open("no:entry", b"payload"))
        self.agents: list[PlayedAgent] = []

    async def invited(self, number: int = 0) -> PlayedAgent:
        await asyncio.sleep(0)  # `open` has invited
        self.agents.append(play(self.engine.invitations[number]))
        return self.agents[-1]

    async def joined(self, number: int = 0, **hello: object) -> PlayedAgent:
        agent = await self.invited(number)
        name = await agent.join(**hello)
        await self.log.until("joined", name)
        return agent

    async def worker(self, agent: PlayedAgent, name: str = "w") -> tuple[Any, Heard]:
        worker, heard = start(self.fleet, name)
        assert await agent.message() == ["launch", name, [], 0]
        return worker, heard


@asynccontextmanager
async def stage(
    most: int = 1, shared: Shared | None = None, *, late_s: float = PATIENCE_S
) -> AsyncIterator[Stage]:
    times = FleetSettings(grace_s=0.1, late_s=late_s, cause_s=0.02)
    async with open_fleet(Invitations(most), times, shared) as opened:
        made = Stage(*opened)
        try:
            yield made
        finally:
            for agent in made.agents:
                agent.link.close()
            made.opening.cancel()
            await asyncio.wait([made.opening])


async def test_a_node_gets_what_all_agents_load_and_joins_when_it_has_loaded() -> None:
    shared = Shared(env_vars={"KEY": "secret"}, service=b"opaque", learns=False)
    async with stage(shared=shared) as on:
        agent = await on.invited()
        agent.greet()
        assert await agent.message() == ["welcome", "played", {"heartbeat_s": 5.0, "lease_s": 8.9}]
        name, table = await agent.message()
        assert (name, table["entry"], table["payload"]) == ("load", "no:entry", b"payload")
        assert (table["env_vars"], table["service"]) == ({"KEY": "secret"}, b"opaque")
        assert not on.log.nodes
        agent.link.send(["loaded", "a notice"])
        assert await on.opening == "a notice"
        facts = on.log.nodes["played"]
        assert (facts.hostname, facts.address, facts.pid) == ("played.example", "127.0.0.1", 4711)
        assert facts.resources == {"CPU": 1.0}


async def test_what_a_service_says_before_the_node_has_joined_follows_it() -> None:
    async with stage() as on:
        agent = await on.invited()
        agent.greet()
        await agent.message()
        await agent.message()
        for message in (["answer", ["ready"]], ["loaded", ""], ["answer", ["more"]]):
            agent.link.send(message)
        await on.log.until("answer", "played", ["more"])
        assert on.log.events == [
            ["joined", "played"],
            ["answer", "played", ["ready"]],
            ["answer", "played", ["more"]],
        ]


async def test_no_two_nodes_of_a_run_have_the_same_name() -> None:
    async with stage(3) as on:
        first = await on.joined(0)
        await on.joined(1)
        first.link.close()
        await on.log.until("left", "played")
        await on.joined(2)
        assert list(on.log.nodes) == ["played", "played-2", "played-3"]


@pytest.mark.parametrize(
    ("hello", "facts"),
    [
        ({"version": "9.9"}, "played.example has holdfast 9.9, this machine 0."),
        ({"protocol": 99}, "install the same version on both"),
        ({"python": "3.99.1"}, "played.example has Python 3.99.1, this machine 3."),
    ],
    ids=["holdfast", "protocol", "python"],
)
async def test_a_node_with_another_version_is_refused_with_both_versions(
    hello: dict[str, Any], facts: str
) -> None:
    async with stage() as on:
        agent = await on.invited()
        agent.greet(**hello)
        name, text = await agent.message()
        assert (name, facts in text) == ("refused", True)
        with pytest.raises(NoNodes, match=facts):
            await on.opening
        assert not on.log.nodes


async def test_a_refused_node_is_a_warning_where_another_one_may_do() -> None:
    async with stage(2) as on:
        other = await on.invited(1)
        other.greet(version="9.9")
        await other.end()
        assert not on.log.events  # if no other one joins, an error says it
        await on.joined(0)
        assert "has holdfast 9.9" in await on.log.told_about("A node is refused")
        assert await on.opening == ""


async def test_messages_pid_and_exit_of_a_worker_reach_its_listener_in_order() -> None:
    async with stage() as on:
        agent = await on.joined()
        worker, heard = await on.worker(agent)
        worker.send(["run", {"a": b"1"}])
        assert await agent.message() == ["send", "w", ["run", {"a": b"1"}]]
        agent.link.send(["pid", "w", 4712])
        agent.link.send(["from", "w", ["report", 1]])
        agent.link.send(["from", "w", ["report", 2]])
        agent.link.send(["exit", "w", exited("exited with status 3")])
        assert await heard.exit() == "exited with status 3"
        assert [(await heard.message())[1] for _ in range(2)] == [1, 2]
        assert worker.pid == 4712
        worker.confirm(4712)
        with pytest.raises(ValueError, match="its pid is 4712, but it reported 4713"):
            worker.confirm(4713)


def exited(cause: str) -> dict[str, Any]:
    return {"cause": cause, "signum": 0, "is_out_of_memory": False}


async def test_orders_to_a_worker_reach_its_agent_until_it_has_exited() -> None:
    async with stage() as on:
        agent = await on.joined()
        worker, heard = await on.worker(agent)
        worker.kill("it hung")
        worker.signal(15)
        assert await agent.message() == ["kill", "w", "it hung"]
        assert await agent.message() == ["signal", "w", 15]
        agent.link.send(["exit", "w", exited("was killed")])
        await heard.exit()
        worker.send(["echo"])
        worker.kill("again")
        worker.signal(9)
        on.fleet.order("played", ["seal", 1])
        assert await agent.message() == ["order", ["seal", 1]]


async def test_late_frames_of_a_worker_that_has_exited_change_nothing() -> None:
    async with stage() as on:
        agent = await on.joined()
        worker, heard = await on.worker(agent)
        agent.link.send(["exit", "w", exited("once")])
        agent.link.send(["from", "w", ["report", 1]])
        agent.link.send(["pid", "w", 99])
        agent.link.send(["exit", "w", exited("twice")])
        agent.link.send(["from", "never launched", ["report", 1]])
        agent.link.send(["answer", ["done"]])
        await on.log.until("answer")
        assert await heard.exit() == "once"
        assert (heard.unread, worker.pid) == (0, 0)


class Strict(Heard):
    """Finds its worker's message invalid."""

    def on_message(self, message: Message) -> None:
        raise WireError("an attempt that is not its own")


async def test_an_invalid_message_of_a_worker_kills_this_worker_only() -> None:
    async with stage() as on:
        agent = await on.joined()
        strict = Strict()
        on.fleet.launch("bad", strict)
        await agent.message()
        _, fine = await on.worker(agent, "fine")
        for _ in range(3):
            agent.link.send(["from", "bad", ["report"]])
        agent.link.send(["from", "fine", ["report"]])
        why = "its connection failed (an attempt that is not its own)"
        assert await agent.message() == ["kill", "bad", why]
        assert await fine.message() == ["report"]
        agent.link.send(["exit", "bad", exited("exited with status 0")])
        assert await strict.exit() == f"exited with status 0: {why}"


@pytest.mark.parametrize(
    ("lie", "reason"),
    [(["heartbeat", "much"], "disk_free_bytes must be"), (["become root"], "unknown message")],
)
async def test_an_agent_that_lies_loses_its_connection(lie: Message, reason: str) -> None:
    async with stage() as on:
        agent = await on.joined()
        _, heard = await on.worker(agent)
        agent.link.send(lie)
        assert reason in await heard.exit()
        assert reason in (await on.log.until("left"))[2]
        await agent.end()


@pytest.mark.parametrize("before", [True, False], ids=["early", "joined"])
async def test_a_node_whose_service_answers_nonsense_loses_its_connection(before: bool) -> None:
    async with stage() as on:
        agent = await on.invited()
        agent.greet()
        await agent.message()
        await agent.message()
        messages: list[Message] = [["answer", ["invalid"]], ["loaded", ""]]
        for message in messages if before else reversed(messages):
            agent.link.send(message)
        assert "an invalid answer" in (await on.log.until("left"))[2]
        await agent.end()


async def test_a_node_leaves_before_its_workers_exit_and_the_engine_adds_the_cause() -> None:
    async with stage() as on:
        agent = await on.joined()
        heards = [(await on.worker(agent, name))[1] for name in ("one", "two")]
        for heard in heards:
            on.log.on_exit(heard)
        on.fleet.gone(agent.ticket, "n1: out of power")
        await asyncio.sleep(0)
        assert len(on.log.events) == 1  # only the connection decides
        agent.link.close()
        cause = "was lost with the node played (n1: out of power)"
        assert [await heard.exit() for heard in heards] == [cause, cause]
        kinds = [event[0] for event in on.log.events]
        assert kinds == ["joined", "left", "exit", "exit"]
        assert on.log.events[1] == ["left", "played", "n1: out of power"]


async def test_a_launch_on_a_node_that_is_gone_is_reported_as_an_exit() -> None:
    async with stage() as on:
        agent = await on.joined()
        agent.link.close()
        await on.log.until("left")
        heard = Heard()
        on.fleet.launch("w", heard, "played")
        assert await heard.exit() == "could not be started: there is no node played"


async def test_a_node_that_is_given_back_ends_in_order() -> None:
    async with stage() as on:
        agent = await on.joined()
        _, heard = await on.worker(agent)
        on.fleet.give_back("played")
        assert (await agent.message())[0] == "end"
        agent.link.send(["exit", "w", exited("was killed by holdfast: the run ended")])
        agent.link.finish()
        assert await heard.exit() == "was killed by holdfast: the run ended"
        assert await on.log.until("left") == ["left", "played", "given back"]
        assert on.engine.given_back == [agent.ticket]


@pytest.mark.parametrize("is_engine", [True, False])
async def test_a_node_that_leaves_says_so_once(is_engine: bool) -> None:
    async with stage() as on:
        agent = await on.joined()
        if is_engine:
            on.fleet.leaving(agent.ticket, 20.0, "the time limit")
        agent.link.send(["leaving", 30.0, "SIGTERM"])
        agent.link.send(["answer", ["done"]])
        await on.log.until("answer")
        told = [event for event in on.log.events if event[0] == "leaving"]
        expected = (20.0, "the time limit") if is_engine else (30.0, "SIGTERM")
        assert told == [["leaving", "played", *expected]]


async def test_a_node_that_nobody_takes_away_in_the_announced_time_is_ended() -> None:
    async with stage() as on:
        agent = await on.joined()
        _, heard = await on.worker(agent)
        agent.link.send(["leaving", 0.01, "SIGTERM"])
        assert await agent.message() == ["end", 0.1]
        agent.link.send(["exit", "w", exited("was killed by holdfast: the run ended")])
        agent.link.finish()
        why = "its announced time was over (SIGTERM)"
        # It counts as preempted, like those of a machine that is switched off.
        assert await heard.exit() == f"was ended with the node played: {why}"
        assert await on.log.until("left") == ["left", "played", why]
        # The engine may start another agent in its place.
        assert on.engine.given_back == [agent.ticket]


async def test_a_node_that_cannot_load_fails_the_run_if_it_is_the_first() -> None:
    async with stage(2) as on:
        first = await on.joined(0)
        later = await on.invited(1)
        later.greet()
        later.link.send(["unloadable", "ImportError", "No module named 'x'", "Traceback"])
        text = await on.log.told_about("cannot be used")
        assert text == "The node played-2 cannot be used: ImportError: No module named 'x'"
        assert [(await later.message())[0] for _ in range(3)] == ["welcome", "load", "refused"]
        assert not first.closed.done()
    async with stage() as on:
        only = await on.invited()
        only.greet()
        only.link.send(["unloadable", "ImportError", "No module named 'x'", "Traceback"])
        with pytest.raises(LaunchFailed, match="ImportError: No module named 'x'") as caught:
            await on.opening
        assert caught.value.traceback == "Traceback"


async def test_a_node_that_still_loads_at_the_end_of_the_run_is_no_failure() -> None:
    async with stage(2) as on:
        await on.joined(0)
        later = await on.invited(1)
        later.greet()
        assert [(await later.message())[0] for _ in range(2)] == ["welcome", "load"]
        ending = asyncio.create_task(on.fleet.close(60))
        assert (await later.message())[0] == "end"
        later.link.send(["unloadable", "WorkerLost", "the warm parent was killed", ""])
        for agent in on.agents:
            agent.link.finish()
        await ending
        assert on.log.told == []


async def test_without_a_node_and_without_hope_of_one_the_run_is_over() -> None:
    async with stage(2) as on:
        first, second = await on.joined(0), await on.joined(1)
        on.fleet.refused("the allocation 7 reached its time limit")
        first.link.close()
        await on.log.until("left", "played")
        assert not [event for event in on.log.events if event[0] == "none left"]
        second.link.close()
        assert await on.log.until("none left") == [
            "none left",
            "the allocation 7 reached its time limit",
        ]


async def test_an_agent_that_ends_before_it_joins_is_a_warning() -> None:
    async with stage(2) as on:
        await asyncio.sleep(0)
        ticket = on.engine.invitations[1].ticket
        on.fleet.gone(ticket, "n1: python: not found")
        agent = await on.invited(1)
        agent.greet()
        await agent.end()  # nobody is admitted with its ticket
        assert not on.log.nodes
        await on.joined(0)
        await on.log.told_about("n1: python: not found")


async def test_a_node_that_is_lost_while_it_loads_is_a_warning() -> None:
    async with stage(2) as on:
        await on.joined(0)
        later = await on.invited(1)
        later.greet()
        assert (await later.message())[0] == "welcome"
        later.link.close()
        text = await on.log.told_about("before it was ready")
        assert text == ("The node played-2 was lost before it was ready: its connection has ended")


async def test_an_agent_that_does_not_end_is_not_waited_for() -> None:
    async with stage(late_s=0.1) as on:
        agent = await on.joined()
        _, heard = await on.worker(agent)
        async with asyncio.timeout(PATIENCE_S):
            await on.fleet.close()
        assert await heard.exit() == "was lost with the node played (it did not end in time)"
        await agent.end()


@pytest.mark.parametrize(
    ("named", "facts"),
    [(["a", "b"], ("a", "b")), (["a"], ("0", "1")), ([], ("0", "1")), (list("abc"), ("a", "b"))],
)
async def test_each_gpu_has_a_name_whatever_the_agent_says(
    named: list[str], facts: tuple[str, ...]
) -> None:
    async with stage() as on:
        await on.joined(resources={"CPU": 1.0, "GPU": 2.0}, gpus=named)
        assert on.log.nodes["played"].gpus == facts


async def test_a_service_that_says_too_much_before_the_node_has_joined_loses_it() -> None:
    async with stage(2) as on:
        await on.joined(0)
        agent = await on.invited(1)
        agent.greet()
        for number in range(1001):
            agent.link.send(["answer", ["warning", str(number)]])
        await on.log.told_about("more than 1,000 messages before it is ready")
        await agent.end()
