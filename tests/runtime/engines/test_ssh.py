"""Agents over the system's ssh: its commands as values, and real sshds on machines."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

import psutil
import pytest

from holdfast.runtime.engines.engine import Engine, EngineFailed
from holdfast.runtime.engines.ssh import SSHEngine, parsed, remote_command
from tests.rig import ROOT
from tests.rig.nodes.engine_contract import EngineContract, refusal, running, times_of
from tests.rig.nodes.engine_host import AGENT, fake_host
from tests.rig.nodes.machines import Machines
from tests.rig.workers.processes import PATIENCE_S, wait_for_end

pytestmark = pytest.mark.anyio

PYTHON = ("env", f"PYTHONPATH={ROOT}", sys.executable)


class SSHRig:
    """Engines for machines that run."""

    def __init__(self, machines: Machines) -> None:
        self.machines = machines
        self.address = machines.address

    def engine(
        self,
        *,
        python: Sequence[str] = (),
        answer_s: float = PATIENCE_S,
        hosts: Sequence[str] = (),
        ssh: Sequence[str] = (),
    ) -> Engine:
        return SSHEngine(
            hosts or self.machines.names[:2],
            python=python or PYTHON,
            ssh=[*self.machines.ssh, *ssh],
            module=AGENT,
            times=times_of(answer_s),
        )


@pytest.fixture
def rig(three_machines: Machines) -> Iterator[SSHRig]:
    yield SSHRig(three_machines)
    for machine in three_machines.all:
        machine.heal()
    three_machines.wait_until_idle()
    left = [child for child in psutil.Process().children() if child.name() == "ssh"]
    assert not left


# -- values -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "arguments"),
    [
        ("node7", "-- node7"),
        ("me@node7.example.org", "-l me -- node7.example.org"),
        ("node7:2222", "-p 2222 -- node7"),
        ("me@[fe80::1%eth0]:22", "-l me -p 22 -- fe80::1%eth0"),
        ("10.0.0.7", "-- 10.0.0.7"),
    ],
)
def test_a_host_becomes_arguments_of_ssh(given: str, arguments: str) -> None:
    assert " ".join(parsed(given).arguments) == arguments


@pytest.mark.parametrize(
    "given",
    [
        "-oProxyCommand=date",
        "me@-v",
        "-l@node7",
        "a b",
        "a;b",
        "$(date)",
        "",
        "a:0",
        "a:70000",
        "a:b",
        "a\n",
        "ssh://a",
    ],
)
def test_what_is_no_host_is_refused(given: str) -> None:
    with pytest.raises(ValueError, match="no host for ssh"):
        SSHEngine(["node1", given])


def test_a_host_may_be_listed_once() -> None:
    with pytest.raises(ValueError, match="listed twice"):
        SSHEngine(["a", "b", "a"])


def test_words_reach_the_shell_there_as_they_are() -> None:
    words = ["~/my env/bin/python", "a'b", "$HOME", "*"]
    line = remote_command(words, {})
    assert line == """exec ~/'my env/bin/python' 'a'"'"'b' '$HOME' '*'"""
    assert remote_command(["python3"], {"A": "b c"}) == "exec env 'A=b c' python3"


def test_hosts_with_equal_resources_are_one_kind() -> None:
    engine = SSHEngine(
        ["a", "b", "c"], resources={"CPU": 8.0}, resources_by_host={"b": {"CPU": 4.0, "GPU": 1.0}}
    )
    kinds = [(kind.name, kind.most, kind.resources) for kind in engine.offer().kinds]
    assert kinds == [("ssh", 2, {"CPU": 8.0}), ("ssh-2", 1, {"CPU": 4.0, "GPU": 1.0})]
    with pytest.raises(ValueError, match="no such host"):
        SSHEngine(["a"], resources_by_host={"z": {}})


# -- real machines ------------------------------------------------------------------------------


@pytest.mark.process
@pytest.mark.server
class TestSSH(EngineContract):
    """The contract, on machines."""

    def check_stubborn(self, pid: int, warning: str) -> None:
        """Nobody can end an agent that ignores the end of its ssh, so the warning names it."""
        assert "node1" in warning
        assert "may still run" in warning
        os.kill(pid, signal.SIGKILL)


@pytest.mark.process
@pytest.mark.server
async def test_what_login_shells_and_banners_print_is_no_frame(rig: SSHRig) -> None:
    node = rig.machines[0]
    (node.disk / ".bashrc").write_text("seq 1 40000; printf 'no end of line'; echo quota >&2\n")
    engine = rig.engine(hosts=["node1"])
    try:
        async with running(rig, engine) as host:
            engine.want("ssh", 1)
            (link,) = await host.agents(1)
            assert link.facts["hostname"] == "node1"
            link.order("echo", "unharmed")
            assert await link.line() == "echo unharmed\n"
    finally:
        (node.disk / ".bashrc").unlink()


@pytest.mark.process
@pytest.mark.server
@pytest.mark.parametrize(
    ("hosts", "options", "why", "remedy"),
    [
        (
            ["nobody@node1", "nobody@node2"],
            [],
            "Permission denied",
            "`ssh HOST true` must work without a password",
        ),
        (
            ["node1", "node2"],
            ["-o", "UserKnownHostsFile=/dev/null"],
            "Host key verification failed",
            "Log in once by hand",
        ),
        (
            ["node1", "node9.invalid"],
            ["-o", "HostKeyAlias=node2"],
            "Host key verification failed",
            "Log in once by hand",
        ),
        (["node1:1", "node2:1"], [], "Connection refused", "No ssh server listens there"),
    ],
    ids=["user", "unknown", "another", "port"],
)
async def test_hosts_that_refuse_are_an_error_at_once(
    rig: SSHRig, hosts: list[str], options: list[str], why: str, remedy: str
) -> None:
    text = await refusal(rig, rig.engine(hosts=hosts, ssh=options))
    assert why in text
    assert remedy in text
    assert "A node needs Python" not in text, "it is no question of Python"
    assert all(host in text for host in hosts)
    assert f"ssh -F {rig.machines.ssh[2]}" in text
    assert "tests.rig.nodes.fake_agent" in text


@pytest.mark.process
@pytest.mark.server
async def test_hosts_that_do_not_answer_are_an_error_after_the_deadline(rig: SSHRig) -> None:
    for node in rig.machines.all:
        node.drop()
    text = await refusal(rig, rig.engine(answer_s=4.0, hosts=rig.machines.names))
    assert [f"node{n}" in text for n in (1, 2, 3)] == [True] * 3
    assert "Connection timed out" in text


@pytest.mark.process
@pytest.mark.server
async def test_a_host_that_falls_silent_during_the_start_is_an_error(rig: SSHRig) -> None:
    """The deadline is holdfast's, because ssh waits for a shell that has not ended."""
    node = rig.machines[0]
    (node.disk / ".bashrc").write_text("echo mounting home; read line\n")
    try:
        text = await refusal(rig, rig.engine(hosts=["node1"], answer_s=4.0))
    finally:
        (node.disk / ".bashrc").unlink()
    assert "no agent has started within 4 s" in text
    assert "mounting home" in text


@pytest.mark.process
@pytest.mark.server
async def test_a_host_that_refuses_is_tried_until_it_comes_back(rig: SSHRig) -> None:
    node = rig.machines[1]
    node.kill_all()
    engine = rig.engine(hosts=["node1", "node2"])
    async with running(rig, engine) as host:
        engine.want("ssh", 2)
        await host.agents(1)
        await host.until(lambda: len(host.causes) >= 3)
        (told,) = host.told
        assert told.startswith("node2 (tried again: ssh: connect to host ")
        assert "Connection refused" in told
        node.boot()
        await host.agents(2)
        assert host.told == [told, ""]
        assert not host.refusal


@pytest.mark.process
@pytest.mark.server
@pytest.mark.parametrize("how", ["unplug", "drop", "power_off"])
async def test_a_host_that_is_cut_off_is_lost_and_used_again(rig: SSHRig, how: str) -> None:
    node = rig.machines[0]
    alive = ["-o", "ServerAliveInterval=1", "-o", "ServerAliveCountMax=1"]
    engine = rig.engine(hosts=["node1"], ssh=alive)
    async with running(rig, engine) as host:
        engine.want("ssh", 1)
        (link,) = await host.agents(1)
        getattr(node, how)()
        await host.until(lambda: bool(host.causes))
        assert "node1" in host.causes[link.facts["ticket"]]
        assert "not responding" in host.causes[link.facts["ticket"]]
        if how == "power_off":
            node.boot()
        else:
            node.heal()
        (again,) = await host.agents(1)
        assert again.facts["pid"] != link.facts["pid"]
        assert not host.refusal
    if how != "power_off":
        # Its sshd never heard of the end of the connection: here nothing beats over it.
        os.kill(link.facts["pid"], signal.SIGKILL)


@pytest.mark.process
@pytest.mark.server
async def test_a_lost_host_that_was_given_back_delays_no_end(rig: SSHRig) -> None:
    node = rig.machines[0]
    engine = rig.engine(hosts=["node1"])
    async with running(rig, engine) as host:
        engine.want("ssh", 1)
        (link,) = await host.agents(1)
        node.drop()
        link.close()
        engine.want("ssh", 0)
        engine.give_back(link.facts["ticket"])
        began = time.monotonic()
        assert await engine.close(PATIENCE_S) == ""
        assert time.monotonic() - began < PATIENCE_S / 2
    os.kill(link.facts["pid"], signal.SIGKILL)


@pytest.mark.process
@pytest.mark.server
def test_agents_and_their_ssh_end_with_a_script_that_is_killed(rig: SSHRig) -> None:
    """Also the ssh to a host that does not answer, which knows of no end of its stdin."""
    machines = rig.machines
    machines[1].drop()
    try:
        given = json.dumps([["node1", "node2"], machines.ssh, 1])
        with subprocess.Popen(
            [sys.executable, "-m", "tests.rig.nodes.engine_script", given],
            stdout=subprocess.PIPE,
            text=True,
        ) as script:
            assert script.stdout is not None
            ours, agents = (json.loads(script.stdout.readline()) for _ in range(2))
            assert (len(ours), len(agents)) == (2, 1)
            script.kill()
        for pid in (*ours, *agents):
            wait_for_end(pid)
    finally:
        machines[1].heal()


async def test_without_ssh_here_there_is_an_error_that_says_so() -> None:
    engine = SSHEngine(["node1"], ssh=["no-such-ssh", "-v"])
    async with fake_host() as host:
        with pytest.raises(EngineFailed, match="`no-such-ssh -v` is not here, so node1 cannot"):
            await engine.open(host)
