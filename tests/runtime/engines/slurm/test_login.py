"""Nodes from a login node of a real Slurm: queue, refusals, and every way in which a job ends."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.runtime.engines.engine import EngineFailed
from holdfast.runtime.engines.slurm.client import Deadlines
from holdfast.runtime.engines.slurm.login import SlurmLogin, SlurmTimes
from holdfast.runtime.engines.slurm.terms import KIND, SlurmTerms
from tests.rig import slurm_agent
from tests.rig.free_tasks import free_tasks
from tests.rig.processes import PATIENCE_S, no_process_is_left
from tests.rig.slurm import SlurmCluster, wait_until
from tests.rig.slurm_host import Agent, SlurmHost

pytestmark = [pytest.mark.anyio, pytest.mark.server]

GRACE_S = 20.0


class Login:
    """An engine whose agents are scripts of the test."""

    def __init__(self, slurm: SlurmCluster, folder: Path) -> None:
        self.slurm = slurm
        self.folder = folder
        self.host = SlurmHost(slurm.address)
        self.engines: list[SlurmLogin] = []

    async def open(self, look_s: float = 0.1, **given: Any) -> SlurmLogin:
        engine = self.engine(look_s=look_s, **given)
        await engine.open(self.host)
        return engine

    def engine(
        self,
        *,
        look_s: float = 0.1,
        environ: dict[str, str] | None = None,
        deadlines: Deadlines | None = None,
        notice_s: float = 60.0,
        **given: Any,
    ) -> SlurmLogin:
        defaults = {
            "nodes": 4,
            "python": (sys.executable, slurm_agent.__file__),
            "folder": str(self.folder),
            "cpus": 2,
        }
        engine = SlurmLogin(
            SlurmTerms(**{**defaults, **given}),
            tasks=free_tasks(),
            environ={**self.slurm.environ_of_commands(), **(environ or {})},
            times=SlurmTimes(
                look_s=look_s, notice_s=notice_s, deadlines=deadlines or Deadlines(), rest_s=0.01
            ),
        )
        self.engines.append(engine)
        return engine

    async def agents(self, count: int) -> list[Agent]:
        return [await self.host.joined() for _ in range(count)]

    async def close(self, engine: SlurmLogin) -> None:
        """End it as the host does, which orders the agents to end first."""
        self.host.hang_up()
        assert await engine.close(GRACE_S) == ""

    async def is_empty(self) -> None:
        """Wait until nothing is in the queue: jobs are still ending."""
        await asyncio.to_thread(wait_until, lambda: not self.queue())

    def job_of(self, agent: Agent) -> str:
        """Slurm's id of the job of an agent."""
        rows = self.slurm.run(
            "squeue", "--noheader", "--array", "--states=RUNNING", "--format=%i %N"
        )
        (job,) = [row.split()[0] for row in rows.splitlines() if row.split()[1] == agent.node]
        return job

    def left(self) -> list[Path]:
        """What the engines have left in their folder."""
        return [*self.folder.glob("*")]

    def queue(self) -> list[str]:
        return self.slurm.run("squeue", "--noheader", "--array", "--format=%i %T").splitlines()


@pytest.fixture
async def login(slurm: SlurmCluster, tmp_path: Path) -> AsyncIterator[Login]:
    made = Login(slurm, tmp_path / "shared")
    await made.host.open()
    with no_process_is_left():
        yield made
        for engine in made.engines:
            await made.close(engine)
        await made.host.close()
        await made.is_empty()
        await asyncio.to_thread(wait_until, lambda: not made.left())


async def test_each_node_gets_a_job_with_an_agent(login: Login) -> None:
    engine = await login.open(cpus=None)
    engine.want(KIND, 4)
    agents = await login.agents(4)
    assert {(one.node, one.cpus) for one in agents} == {
        ("n1", 8), ("n2", 4), ("n3", 4), ("n4", 4)
    }  # fmt: skip
    assert {one.ticket for one in agents} == {"t1", "t2", "t3", "t4"}
    # Only the user may look into the folder, and the invitations are gone.
    (folder,) = login.folder.iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert [*folder.glob("*.invitation")] == []
    await login.close(engine)
    assert login.host.ends.keys() == {"t1", "t2", "t3", "t4"}
    assert all("ended by holdfast: the run ended" in end for end in login.host.ends.values())
    assert login.host.refusals == []


@pytest.mark.nightly
async def test_a_queue_is_shown_with_slurms_reason(login: Login) -> None:
    engine = await login.open(cpus=None, nodes=6)
    engine.want(KIND, 6)
    await login.agents(4)
    assert await login.host.waits_for("2 of 6", "Resources") == (
        "2 of 6 nodes wait in Slurm's queue (Resources)"
    )
    # The engine starts no more than that, and gives up what has not begun.
    engine.want(KIND, 4)
    await login.host.waits_for()
    ends = [await login.host.gone_of(ticket) for ticket in ("t5", "t6")]
    assert all("it is not needed any more" in end for end in ends)
    assert len(login.queue()) == 4


@pytest.mark.nightly
async def test_a_node_that_is_given_back_is_not_replaced(login: Login) -> None:
    engine = await login.open()
    engine.want(KIND, 2)
    first, second = await login.agents(2)
    engine.want(KIND, 1)
    engine.give_back(first.ticket)
    first.hang_up()
    await login.host.gone_of(first.ticket)
    assert login.host.ends.keys() == {first.ticket}
    engine.want(KIND, 2)
    (third,) = await login.agents(1)
    assert third.ticket == "t3"
    second.order("exit 0")


async def test_a_cancelled_job_is_named_and_replaced(login: Login) -> None:
    engine = await login.open(nodes=1)
    engine.want(KIND, 1)
    (agent,) = await login.agents(1)
    login.slurm.run("scancel", login.job_of(agent))
    # The agent has time to let its workers save.
    assert await agent.says() == "terminated"
    agent.order("exit 0")
    cause = await login.host.gone_of(agent.ticket)
    assert f" on {agent.node} was cancelled (scancel). Its last lines:" in cause
    assert "oh no" in cause
    assert (await login.agents(1))[0].ticket == "t2"


async def test_the_host_gets_the_cause_of_a_loss_when_it_asks(login: Login) -> None:
    engine = await login.open(look_s=PATIENCE_S)
    engine.want(KIND, 1)
    (agent,) = await login.agents(1)
    await login.host.waits_for()
    agent.order("exit 5")
    assert await agent.says() == ""
    engine.ask(agent.ticket)
    engine.ask("of a job that is gone")
    assert "failed (exit status 5)" in await login.host.gone_of(agent.ticket)


async def test_what_sbatch_refuses_is_told_with_the_command_and_its_last_lines(
    login: Login,
) -> None:
    engine = await login.open(partition="nosuch", nodes=2)
    engine.want(KIND, 2)
    told = await login.host.refused_with()
    assert told.startswith("Slurm: `sbatch --parsable --partition=nosuch")
    assert "invalid partition specified: nosuch" in told
    assert login.host.ends == {"t1": told, "t2": told}


@pytest.mark.nightly
async def test_a_job_that_slurm_would_never_start_is_refused(login: Login) -> None:
    engine = await login.open(partition="short", time="1:00:00", nodes=2)
    engine.want(KIND, 2)
    told = await login.host.refused_with()
    assert "PartitionTimeLimit (the time limit is longer than the partition allows)" in told


async def test_a_folder_that_cannot_be_written_is_an_error(login: Login, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    engine = await login.open(folder=str(tmp_path / "file"))
    engine.want(KIND, 1)
    assert f"Slurm: cannot write to {tmp_path}/file/holdfast-" in await login.host.refused_with()


def seen_of(pid: int) -> str:
    return "".join(Path(f"/proc/{pid}/{name}").read_text() for name in ("environ", "cmdline"))


async def test_no_secret_can_be_seen(login: Login, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login.host, "invited_as", lambda ticket: f"secret-{ticket}")
    engine = await login.open(cpus=None, nodes=5)
    engine.want(KIND, 5)
    agents = await login.agents(4)
    await login.host.waits_for("1 of 5")
    jobs = login.slurm.run("scontrol", "show", "job")
    script = login.slurm.run("scontrol", "write", "batch_script", login.job_of(agents[0]), "-")
    assert "secret-" not in jobs + script + seen_of(agents[0].pid)
    # It is only in the file of the job that has not begun.
    (folder,) = login.folder.iterdir()
    (waiting,) = folder.glob("*.invitation")
    assert "secret-t5" in waiting.read_text()
    assert waiting.stat().st_mode & 0o777 == 0o600


async def test_kill_ends_what_has_no_agent_yet(login: Login) -> None:
    engine = await login.open(cpus=None, nodes=5)
    engine.want(KIND, 5)
    agents = await login.agents(4)
    await login.host.waits_for("1 of 5")
    engine.kill()
    for agent in agents:
        agent.hang_up()
    await login.is_empty()


async def test_what_does_not_end_in_time_is_named(login: Login) -> None:
    engine = await login.open(nodes=1)
    engine.want(KIND, 1)
    (agent,) = await login.agents(1)
    job = login.job_of(agent)
    assert await engine.close(0.01) == f"Slurm jobs may still run; end them with `scancel {job}`"
    agent.hang_up()
    await login.is_empty()


# -- a controller that does not answer ------------------------------------------------------------


def put(folder: Path, program: str, script: str) -> dict[str, str]:
    """An environment where the program is this script. `$REAL` is the real one."""
    folder.mkdir(exist_ok=True)
    (folder / program).write_text(f"#!/bin/sh\nREAL=/usr/bin/{program}\n{script}\n")
    (folder / program).chmod(0o700)
    return {"PATH": f"{folder}:/usr/bin:/bin"}


async def test_without_slurm_the_error_says_so(login: Login, tmp_path: Path) -> None:
    engine = login.engine(environ={"PATH": str(tmp_path)})
    with pytest.raises(EngineFailed, match="`sbatch` was not found on PATH"):
        await engine.open(login.host)


async def test_a_controller_that_is_not_there_is_an_error(login: Login, tmp_path: Path) -> None:
    environ = put(tmp_path / "bin", "squeue", "echo slurm_load_jobs error >&2; exit 1")
    with pytest.raises(EngineFailed, match=r"squeue --noheader .*: slurm_load_jobs error"):
        await login.engine(environ=environ).open(login.host)


async def test_a_controller_that_hangs_is_asked_again(login: Login, tmp_path: Path) -> None:
    hang = f'[ ! -e {tmp_path}/hangs ] && exec $REAL "$@"; exec sleep 1000'
    environ = put(tmp_path / "bin", "squeue", hang)
    engine = await login.open(environ=environ, deadlines=Deadlines(command_s=0.15), nodes=1)
    (tmp_path / "hangs").touch()
    engine.want(KIND, 1)
    told = await login.host.waits_for("does not answer")
    assert told == (
        "Slurm, which does not answer; trying again (squeue did not end within 0.15 s)"
    )
    (tmp_path / "hangs").unlink()
    await login.agents(1)
    assert login.host.ends == {}


async def test_a_submission_without_an_answer_is_found_in_the_queue(
    login: Login, tmp_path: Path
) -> None:
    environ = put(tmp_path / "bin", "sbatch", '$REAL "$@" >/dev/null; exec sleep 1000')
    engine = await login.open(environ=environ, deadlines=Deadlines(submit_s=0.5), nodes=2)
    engine.want(KIND, 2)
    await login.agents(2)
    await login.host.has_said("sbatch did not end within 0.5 s")
    assert len(login.queue()) == 2


@pytest.mark.nightly
async def test_a_submission_that_did_not_arrive_is_repeated(login: Login, tmp_path: Path) -> None:
    fails = (
        f'[ -e {tmp_path}/tried ] && exec $REAL "$@"; touch {tmp_path}/tried; '
        f"echo 'sbatch: error: Unable to contact slurm controller (connect failure)' >&2; exit 1"
    )
    engine = await login.open(environ=put(tmp_path / "bin", "sbatch", fails), nodes=2)
    engine.want(KIND, 2)
    assert {agent.ticket for agent in await login.agents(2)} == {"t1", "t2"}
    await login.host.has_said("Unable to contact")


@pytest.mark.nightly
async def test_close_does_not_wait_longer_than_it_may(login: Login, tmp_path: Path) -> None:
    hang = f'[ ! -e {tmp_path}/hangs ] && exec $REAL "$@"; exec sleep 1000'
    engine = await login.open(environ=put(tmp_path / "bin", "squeue", hang), nodes=1)
    engine.want(KIND, 1)
    (agent,) = await login.agents(1)
    job = login.job_of(agent)
    (tmp_path / "hangs").touch()
    assert await engine.close(0.3) == f"Slurm jobs may still run; end them with `scancel {job}`"
    agent.hang_up()
    await login.is_empty()


# -- ends that Slurm decides ----------------------------------------------------------------------


@pytest.mark.nightly
async def test_the_job_of_a_node_that_is_down_is_replaced(login: Login) -> None:
    engine = await login.open(nodes=1)
    engine.want(KIND, 1)
    (agent,) = await login.agents(1)
    login.slurm.run("scontrol", "update", f"nodename={agent.node}", "state=down", "reason=test")
    assert await agent.says() == "terminated"
    agent.order("exit 0")
    assert "lost its node" in await login.host.gone_of(agent.ticket)
    await login.agents(1)
    # Slurm uses the node again as soon as its daemon answers.
    await asyncio.to_thread(wait_until, login.slurm.is_whole)


@pytest.mark.nightly
async def test_a_preempted_job_waits_in_the_queue_again(login: Login) -> None:
    engine = await login.open(nodes=4, cpus=None)
    engine.want(KIND, 4)
    agents = await login.agents(4)
    login.slurm.run(
        "sbatch", "--partition=high", "--exclusive", "--output=/dev/null", "--wrap=sleep 1000",
        "--job-name=urgent", "--nodelist=n3",
    )  # fmt: skip
    (agent,) = [one for one in agents if one.node == "n3"]
    assert await agent.says() == "terminated"
    agent.order("exit 0")
    assert "was preempted by another job" in await login.host.gone_of(agent.ticket)
    await login.host.waits_for("1 of 4")
    login.slurm.run("scancel", "--name=urgent")
    assert (await login.agents(1))[0].node == "n3"


@pytest.mark.nightly
async def test_a_time_limit_is_announced_before_it_arrives(login: Login) -> None:
    engine = await login.open(nodes=1, time="1")
    engine.want(KIND, 1)
    (agent,) = await login.agents(1)
    seconds, why = await login.host.leaving_of(agent.ticket, within_s=90)
    assert 0 < seconds <= 15
    assert why == "its Slurm time limit"
    # Another job takes its place before it ends.
    (second,) = await login.agents(1)
    assert await agent.says(within_s=90) == "terminated"
    agent.order("exit 0")
    assert "reached its time limit" in await login.host.gone_of(agent.ticket)
    assert second.ticket not in login.host.ends


@pytest.mark.nightly
async def test_jobs_that_ignore_the_end_are_killed(login: Login) -> None:
    engine = await login.open(nodes=2)
    engine.want(KIND, 2)
    agents = await login.agents(2)
    assert await engine.close(GRACE_S) == ""
    assert [await agent.says() for agent in agents] == ["terminated", "terminated"]
    assert [await agent.says() for agent in agents] == ["", ""]
