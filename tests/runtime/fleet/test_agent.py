"""Agents as real processes: how they end, what they leave, and what others can see of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from holdfast.experiment.nodes.agent_main import SCRATCH_ROOT
from holdfast.runtime.engines.engine import LEAVES_IN_S, Invitation
from holdfast.runtime.engines.started import UNHEARD, UNREACHED
from holdfast.runtime.fleet.facts import NODE_DIR, FleetSettings, Shared
from holdfast.runtime.fleet.fleet import Fleet
from holdfast.runtime.fleet.handshake import decode_invitation, encode_invitation
from tests.rig.nodes.fleets import Agents, Cable, FleetLog, open_fleet
from tests.rig.workers.launcher_contract import OBEYING, ask, start
from tests.rig.workers.processes import Heard, wait_for_end

pytestmark = [pytest.mark.anyio, pytest.mark.process]


@asynccontextmanager
async def one_node(
    folder: Path, settings: FleetSettings | None = None, **options: Any
) -> AsyncIterator[tuple[Fleet, FleetLog, Agents]]:
    """A fleet of one agent, whose scratch folder is in `folder`."""
    environ = {**os.environ, SCRATCH_ROOT: str(folder), **options.pop("environ", {})}
    async with open_fleet(Agents(environ, **options), settings) as opened:
        await opened[0].open(OBEYING, b"shared")
        yield opened


def inside(folder: Path) -> list[Path]:
    return list(folder.iterdir())


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


def shown(pid: int) -> bytes:
    """What other processes can see of this one."""
    return b"".join(Path(f"/proc/{pid}/{file}").read_bytes() for file in ("cmdline", "environ"))


def written(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


async def worker_of(fleet: Fleet) -> tuple[Any, Heard, dict[str, Any]]:
    worker, heard = start(fleet)
    return worker, heard, await ask(worker, heard, "tell")


async def test_a_killed_agent_takes_its_workers_along(tmp_path: Path) -> None:
    async with one_node(tmp_path) as (fleet, _, engine):
        worker, heard, facts = await worker_of(fleet)
        grandchild = await ask(worker, heard, "bear")
        engine.agent.kill()
        cause = await heard.exit()
        assert "was killed by signal 9 (SIGKILL)" in cause
        for pid in (facts["pid"], facts["parent"], grandchild):
            wait_for_end(pid)


@pytest.mark.parametrize("over_pipe", [False, True], ids=["tls", "pipe"])
async def test_an_agent_without_its_controller_ends_its_workers_and_itself(
    tmp_path: Path, over_pipe: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with one_node(tmp_path, over_pipe=over_pipe) as (fleet, log, engine):
        monkeypatch.setattr(engine, "kill", lambda: None)
        worker, heard, facts = await worker_of(fleet)
        grandchild = await ask(worker, heard, "bear")
        (node,) = log.nodes.values()
        fleet.kill()
        for pid in (facts["pid"], facts["parent"], grandchild, node.pid):
            wait_for_end(pid)
        assert inside(tmp_path) == []


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
async def test_an_agent_that_is_to_end_says_so_and_works_on(tmp_path: Path, signum: int) -> None:
    async with one_node(tmp_path, environ={LEAVES_IN_S: "12.5"}) as (fleet, log, engine):
        worker, heard, _ = await worker_of(fleet)
        for _ in range(2):
            engine.agent.send_signal(signum)
        (name,) = log.nodes
        told = await log.until("leaving")
        assert told == ["leaving", name, 12.5, signal.Signals(signum).name]
        assert await ask(worker, heard, "echo", 1) == 1
        fleet.give_back(name)
        assert await heard.exit() == "was killed by holdfast: the run ended"
        assert await log.until("left") == ["left", name, "given back"]
        assert [event[0] for event in log.events] == ["joined", "leaving", "left"]
        assert engine.agent.wait(30) == 0


async def test_a_node_that_is_silent_is_lost_and_ends_when_it_wakes_up(tmp_path: Path) -> None:
    times = FleetSettings(heartbeat_s=0.1, lease_s=1.0, margin_s=0.2, cause_s=0.01, grace_s=2.0)
    async with one_node(tmp_path, times) as (fleet, log, engine):
        _, heard, facts = await worker_of(fleet)
        engine.agent.send_signal(signal.SIGSTOP)
        assert "not heard for" in await heard.exit()
        (name,) = log.nodes
        assert (await log.until("left"))[2].startswith("not heard for")
        assert engine.given_back  # the engine may still end the job
        assert name
        engine.agent.send_signal(signal.SIGCONT)
        wait_for_end(facts["pid"])
        assert engine.agent.wait(30) == UNHEARD


async def test_both_sides_of_a_cut_network_give_up_and_the_agent_first(tmp_path: Path) -> None:
    """No word passes, and no side is closed."""
    cable = Cable()
    port = await cable.lay()

    def detour(invitation: Invitation) -> Invitation:
        invited = decode_invitation(invitation.secret)
        cable.target = (invited.address, invited.port)
        return replace(invitation, secret=encode_invitation(replace(invited, port=port)))

    times = FleetSettings(heartbeat_s=0.1, lease_s=1.3, margin_s=2.0, cause_s=0.01, grace_s=2.0)
    async with one_node(tmp_path, times, change=detour) as (fleet, log, engine):
        _, heard, facts = await worker_of(fleet)
        cable.cut()
        assert "not heard for 3.3" in await heard.exit()
        assert not psutil.pid_exists(facts["pid"]), "the trial would run twice"
        assert engine.agent.wait(30) == UNHEARD
        assert len([event for event in log.events if event[0] == "left"]) == 1
    await cable.remove()


async def test_workers_know_the_scratch_folder_which_only_this_user_can_read(
    tmp_path: Path,
) -> None:
    async with one_node(tmp_path) as (fleet, _, _):
        _, _, facts = await worker_of(fleet)
        folder = Path(facts["environ"][NODE_DIR])
        assert folder.is_relative_to(tmp_path)
        assert mode_of(folder) == mode_of(folder.parent) == 0o700
        (folder / "checkpoint").mkdir()
    assert inside(tmp_path) == []


async def test_the_folder_of_an_agent_that_was_killed_is_removed_by_the_next_one(
    tmp_path: Path,
) -> None:
    async with one_node(tmp_path) as (_, log, engine):
        engine.agent.kill()
        await log.until("left")
        (base,) = inside(tmp_path)
        (left,) = inside(base)
        async with one_node(tmp_path):
            (own,) = inside(base)
            assert own != left


async def test_no_secret_is_in_an_argument_or_in_an_environment(tmp_path: Path) -> None:
    secrets: list[bytes] = []

    def note(invitation: Invitation) -> Invitation:
        invited = decode_invitation(invitation.secret)
        assert invited.credentials is not None
        key = invited.credentials.key.splitlines()[1]
        secrets.extend([invited.token, invited.token.hex().encode(), key])
        return invitation

    async with one_node(tmp_path, change=note) as (fleet, _, engine):
        await worker_of(fleet)
        agent = psutil.Process(engine.agent.pid)
        family = [agent, *agent.children(recursive=True)]
        assert len(family) >= 3
        seen = b"".join(shown(process.pid) for process in family)
        assert b"holdfast.agent" in seen
        assert not [secret for secret in secrets if secret in seen + written(tmp_path)]


async def test_what_is_printed_on_a_node_does_not_mix_with_frames(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with one_node(tmp_path, over_pipe=True, noise=b"Welcome to n1") as (fleet, _, _):
        worker, heard, _ = await worker_of(fleet)
        assert await ask(worker, heard, "call", "builtins:print", "printed") is None
        assert await ask(worker, heard, "call", "os:system", "echo from a program") == 0
    printed = capfd.readouterr().err
    assert "from a program" in printed


async def test_a_stopped_worker_is_continued_and_the_controller_is_told(tmp_path: Path) -> None:
    environ = {**os.environ, SCRATCH_ROOT: str(tmp_path)}
    shared = Shared(stopped_deadline_s=0.2)
    async with open_fleet(Agents(environ), shared=shared) as (fleet, log, _):
        await fleet.open(OBEYING, b"")
        worker, heard, facts = await worker_of(fleet)
        os.kill(facts["pid"], signal.SIGSTOP)
        assert "the worker worker" in await log.told_about("was stopped from outside")
        assert await ask(worker, heard, "echo", 1) == 1


@pytest.mark.parametrize(
    ("stdin", "told", "status"),
    [
        (b"", "stdin ended", UNREACHED),
        (b"\xff\xff\xff\xff", "has no invitation", UNREACHED),
        (b"\0\0\0\1\xc1", "not", 1),
    ],
)
def test_an_agent_without_an_invitation_says_so(stdin: bytes, told: str, status: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "holdfast.agent", "-"], input=stdin, capture_output=True, timeout=60
    )
    assert done.returncode == status
    assert told in done.stderr.decode()
    assert done.stdout == b""
