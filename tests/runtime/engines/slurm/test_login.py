"""Nodes from a login node of a real Slurm: queue, refusals, and every way in which a job ends."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.runtime.engines import started
from holdfast.runtime.engines.engine import EngineFailed
from holdfast.runtime.engines.slurm import login as login_module
from holdfast.runtime.engines.slurm.client import Deadlines
from holdfast.runtime.engines.slurm.commands import KIND, SlurmTerms
from holdfast.runtime.engines.slurm.login import SlurmLogin, SlurmTimes
from tests.rig.free_tasks import free_tasks
from tests.rig.nodes.engine_host import AGENT, AgentLink, FakeHost, fake_host
from tests.rig.nodes.slurm import KILL_WAIT_S, SlurmCluster, wait_until
from tests.rig.nodes.slurm_rigs import PYTHON
from tests.rig.workers.processes import PATIENCE_S, no_process_is_left

pytestmark = [pytest.mark.anyio, pytest.mark.server]

GRACE_S = 20.0


class Agent:
    """One that has joined, and tells of SIGTERM instead of ending."""

    def __init__(self, link: AgentLink) -> None:
        self.link = link
        self.ticket: str = link.facts["ticket"]
        self.node: str = link.facts["hostname"]
        self.pid: int = link.facts["pid"]
        self.cpus = int(link.facts["cpus"])

    async def says(self, within_s: float = PATIENCE_S) -> str:
        """Its next line; "" at the end of its connection."""
        return (await self.link.line(within_s)).strip()


class Login:
    """Engines of one host, on a login node."""

    def __init__(self, slurm: SlurmCluster, folder: Path, host: FakeHost) -> None:
        self.slurm = slurm
        self.folder = folder
        self.host = host
        self.engines: list[SlurmLogin] = []
        self._met: set[str] = set()

    async def open(self, poll_s: float = 0.1, **given: Any) -> SlurmLogin:
        engine = self.engine(poll_s=poll_s, **given)
        await engine.open(self.host)
        return engine

    def engine(
        self,
        *,
        poll_s: float = 0.1,
        environ: dict[str, str] | None = None,
        deadlines: Deadlines | None = None,
        **given: Any,
    ) -> SlurmLogin:
        defaults = {
            "nodes": 4,
            "python": PYTHON,
            "module": AGENT,
            "folder": str(self.folder),
            "cpus": 2,
        }
        engine = SlurmLogin(
            SlurmTerms(**{**defaults, **given}),
            tasks=free_tasks(),
            environ={**self.slurm.environ_of_commands(), **(environ or {})},
            times=SlurmTimes(poll_s=poll_s, deadlines=deadlines or Deadlines(), pause_s=0.01),
        )
        self.engines.append(engine)
        return engine

    async def agents(self, count: int) -> list[Agent]:
        """The next agents that join."""
        await self.host.until(lambda: len(self._new()) == count)
        found = [Agent(link) for link in self._new()]
        for agent in found:
            self._met.add(agent.ticket)
            agent.link.order("trap")
            assert await agent.says() == "trap"
        return found

    def _new(self) -> list[AgentLink]:
        return [link for ticket, link in self.host.links.items() if ticket not in self._met]

    async def end_of(self, ticket: str) -> str:
        """Why this job has ended."""
        await self.host.until(lambda: ticket in self.host.causes)
        return self.host.causes[ticket]

    async def waits_for(self, *words: str) -> str:
        """What the engine waits for, once that has all these words."""
        told = self.host.told
        await self.host.until(lambda: told and all(word in told[-1] for word in words))
        return told[-1]

    async def has_told(self, words: str) -> None:
        """Wait until the engine has waited for something with these words, if only for a while."""
        await self.host.until(lambda: any(words in told for told in self.host.told))

    def hang_up(self) -> None:
        """End all agents."""
        for link in self.host.links.values():
            link.close()

    async def close(self, engine: SlurmLogin) -> None:
        """End it as the host does, which orders the agents to end first."""
        self.hang_up()
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
    async with fake_host(slurm.address) as host:
        made = Login(slurm, tmp_path / "shared", host)
        with no_process_is_left():
            yield made
            for engine in made.engines:
                await made.close(engine)
            await made.is_empty()
            await asyncio.to_thread(wait_until, lambda: not made.left())
        assert host.causes.keys() == host.invited.keys(), "each ticket has an end"


@pytest.mark.nightly
async def test_a_queue_is_shown_with_slurms_reason(login: Login) -> None:
    engine = await login.open(cpus=None, nodes=6)
    engine.want(KIND, 6)
    await login.agents(4)
    assert await login.waits_for("2 of 6", "Resources") == (
        "2 of 6 nodes wait in Slurm's queue (Resources)"
    )
    # The engine starts no more than that, and gives up what has not begun.
    engine.want(KIND, 4)
    await login.waits_for()
    waiting = list(login.host.invited)[-2:]
    ends = [await login.end_of(ticket) for ticket in waiting]
    assert all("it is not needed any more" in end for end in ends)
    assert len(login.queue()) == 4


async def test_a_cancelled_job_is_named_and_replaced(login: Login) -> None:
    engine = await login.open(nodes=1)
    engine.want(KIND, 1)
    (agent,) = await login.agents(1)
    login.slurm.run("scancel", login.job_of(agent))
    # The agent has time to let its workers save.
    assert await agent.says() == "terminated"
    agent.link.order("exit", 0, "oh", "no")
    cause = await login.end_of(agent.ticket)
    assert f" on {agent.node} was cancelled (scancel). Its last lines:" in cause
    assert "oh no" in cause
    await login.agents(1)
    (told,) = login.host.warnings
    assert f" on {agent.node} was cancelled (scancel), and not by holdfast, which submits" in told


async def test_jobs_that_are_cancelled_again_and_again_are_not_replaced_without_an_end(
    login: Login,
) -> None:
    engine = await login.open(nodes=1)
    engine.want(KIND, 1)
    for _ in range(3):
        (agent,) = await login.agents(1)
        login.slurm.run("scancel", login.job_of(agent))
        assert await agent.says() == "terminated"
        agent.link.order("exit", 0, "oh", "no")
    told = await login.host.refusal_of()
    assert told.startswith("Slurm: jobs of this run were cancelled 3 times without all of them")
    assert len(login.host.warnings) == 2
    await login.is_empty()


async def test_the_host_gets_the_cause_of_a_loss_when_it_asks(
    login: Login, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(login_module, "_ASKED_S", 2 * PATIENCE_S)
    engine = await login.open(poll_s=10 * PATIENCE_S)
    engine.want(KIND, 1)
    (agent,) = await login.agents(1)
    agent.link.order("exit", 5, "oh", "no")
    assert await agent.says() == ""
    engine.ask(agent.ticket)
    engine.ask("of a job that is gone")
    assert "failed (exit status 5)" in await login.end_of(agent.ticket)


async def test_what_sbatch_refuses_is_told_with_the_command_and_its_last_lines(
    login: Login,
) -> None:
    engine = await login.open(partition="nosuch", nodes=2)
    engine.want(KIND, 2)
    told = await login.host.refusal_of()
    assert told.startswith("Slurm: `sbatch --parsable --partition=nosuch")
    assert "invalid partition specified: nosuch" in told
    assert list(login.host.causes.values()) == [told, told]


@pytest.mark.nightly
async def test_a_job_that_slurm_would_never_start_is_refused(login: Login) -> None:
    engine = await login.open(partition="short", time="1:00:00", nodes=2)
    engine.want(KIND, 2)
    told = await login.host.refusal_of()
    assert "PartitionTimeLimit (the time limit is longer than the partition allows)" in told


async def test_an_agent_that_cannot_reach_this_machine_is_refused_at_once(login: Login) -> None:
    says = "printf '\\000holdfast agent\\000\\n'; echo cannot be reached; "
    engine = await login.open(python=["sh", "-c", f"{says}exit {started.UNREACHED}"], nodes=1)
    engine.want(KIND, 1)
    assert "cannot be reached" in await login.host.refusal_of()
    assert len(login.host.invited) == 1


async def test_a_folder_that_cannot_be_written_is_an_error(login: Login, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    engine = await login.open(folder=str(tmp_path / "file"))
    engine.want(KIND, 1)
    assert f"Slurm: cannot write to {tmp_path}/file/holdfast-" in await login.host.refusal_of()


async def test_no_secret_can_be_seen_and_a_kill_ends_what_waits(login: Login) -> None:
    engine = await login.open(cpus=None, nodes=5)
    engine.want(KIND, 5)
    agents = await login.agents(4)
    assert {one.link.facts["leaves_in_s"] for one in agents} == {str(KILL_WAIT_S)}
    await login.waits_for("1 of 5")
    jobs = login.slurm.run("scontrol", "show", "job")
    script = login.slurm.run("scontrol", "write", "batch_script", login.job_of(agents[0]), "-")
    login.host.assert_that_no_secret_shows()
    secrets = login.host.invited.values()
    assert not [one for one in secrets if one in jobs + script]
    # It is only in the file of the job that has not begun.
    (folder,) = login.folder.iterdir()
    (waiting,) = folder.glob("*.invitation")
    assert list(secrets)[-1] in waiting.read_text()
    assert (folder.stat().st_mode & 0o777, waiting.stat().st_mode & 0o777) == (0o700, 0o600)
    # A kill also ends the job that has no agent yet.
    engine.kill()
    login.hang_up()
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


async def test_a_controller_that_hangs_is_asked_again(
    login: Login, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(login_module, "_PAUSE_PER_POLL", 0.0)
    hang = f'[ ! -e {tmp_path}/hangs ] && exec $REAL "$@"; exec sleep 1000'
    environ = put(tmp_path / "bin", "squeue", hang)
    engine = await login.open(environ=environ, deadlines=Deadlines(command_s=1.0), nodes=1)
    (tmp_path / "hangs").touch()
    engine.want(KIND, 1)
    told = await login.waits_for("does not answer")
    assert told == ("Slurm, which does not answer; trying again (squeue did not end within 1 s)")
    (tmp_path / "hangs").unlink()
    await login.agents(1)
    assert login.host.causes == {}


async def test_a_submission_without_an_answer_is_found_in_the_queue(
    login: Login, tmp_path: Path
) -> None:
    environ = put(tmp_path / "bin", "sbatch", '$REAL "$@" >/dev/null; exec sleep 1000')
    engine = await login.open(environ=environ, deadlines=Deadlines(submit_s=1.0), nodes=2)
    engine.want(KIND, 2)
    await login.agents(2)
    await login.has_told("sbatch did not end within 1 s")
    assert len(login.queue()) == 2


@pytest.mark.nightly
async def test_a_submission_that_did_not_arrive_is_repeated(login: Login, tmp_path: Path) -> None:
    fails = (
        f'[ -e {tmp_path}/tried ] && exec $REAL "$@"; touch {tmp_path}/tried; '
        f"echo 'sbatch: error: Unable to contact slurm controller (connect failure)' >&2; exit 1"
    )
    engine = await login.open(environ=put(tmp_path / "bin", "sbatch", fails), nodes=2)
    engine.want(KIND, 2)
    await login.agents(2)
    assert len(login.host.invited) == 2
    await login.has_told("Unable to contact")


@pytest.mark.nightly
async def test_close_does_not_wait_longer_than_it_may(login: Login, tmp_path: Path) -> None:
    hang = f'[ ! -e {tmp_path}/hangs ] && exec $REAL "$@"; exec sleep 1000'
    engine = await login.open(environ=put(tmp_path / "bin", "squeue", hang), nodes=1)
    engine.want(KIND, 1)
    (agent,) = await login.agents(1)
    job = login.job_of(agent)
    (tmp_path / "hangs").touch()
    assert await engine.close(0.3) == f"Slurm jobs may still run; end them with `scancel {job}`"
    agent.link.close()
    await login.is_empty()


# -- ends that Slurm decides ----------------------------------------------------------------------


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
    agent.link.order("exit", 0, "oh", "no")
    assert "was preempted by another job" in await login.end_of(agent.ticket)
    await login.waits_for("1 of 4")
    login.slurm.run("scancel", "--name=urgent")
    assert (await login.agents(1))[0].node == "n3"


@pytest.mark.nightly
async def test_a_time_limit_is_announced_before_it_arrives(login: Login) -> None:
    engine = await login.open(nodes=1, time="1")
    engine.want(KIND, 1)
    (agent,) = await login.agents(1)
    await login.host.until(lambda: login.host.warned, within_s=90)
    ((ticket, seconds, why),) = login.host.warned
    assert ticket == agent.ticket
    assert 0 < seconds <= 15
    assert why == "its Slurm time limit"
    # Another job takes its place before it ends.
    (second,) = await login.agents(1)
    assert await agent.says(within_s=90) == "terminated"
    agent.link.order("exit", 0, "oh", "no")
    assert "reached its time limit" in await login.end_of(agent.ticket)
    assert second.ticket not in login.host.causes
