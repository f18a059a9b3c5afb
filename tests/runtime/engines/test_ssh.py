"""Agents over the system's ssh: its commands as values, and real sshds on machines."""

import os
import signal
import sys
from collections.abc import Iterator, Sequence

import pytest

from holdfast.runtime.engines.engine import Engine
from holdfast.runtime.engines.seated import Times
from holdfast.runtime.engines.ssh import SSHEngine, parsed, remote_command
from tests.rig import ROOT
from tests.rig.engine_contract import CLOSE_S, EngineContract
from tests.rig.engine_host import AGENT
from tests.rig.machines import Machines
from tests.rig.processes import PATIENCE_S, no_process_is_left

REAL = [pytest.mark.anyio, pytest.mark.process, pytest.mark.server]
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
        end_s: float = CLOSE_S,
        hosts: Sequence[str] = (),
        ssh: Sequence[str] = (),
    ) -> Engine:
        return SSHEngine(
            hosts or self.machines.names,
            python=python or PYTHON,
            ssh=[*self.machines.ssh, *ssh],
            module=AGENT,
            times=Times(answer_s=answer_s, end_s=end_s, rest_s=0.05),
        )


@pytest.fixture
def rig(three_machines: Machines) -> Iterator[SSHRig]:
    with no_process_is_left():
        yield SSHRig(three_machines)
        for machine in three_machines.all:
            machine.wait_until_idle()


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
    assert remote_command(words) == """exec ~/'my env/bin/python' 'a'"'"'b' '$HOME' '*'"""


def test_hosts_with_equal_resources_are_one_kind() -> None:
    engine = SSHEngine(
        ["a", "b", "c"], resources={"CPU": 8.0}, resources_by_host={"b": {"CPU": 4.0, "GPU": 1.0}}
    )
    kinds = [(kind.name, kind.most, kind.resources) for kind in engine.offer().kinds]
    assert kinds == [("ssh", 2, {"CPU": 8.0}), ("ssh-2", 1, {"CPU": 4.0, "GPU": 1.0})]
    with pytest.raises(ValueError, match="no such host"):
        SSHEngine(["a"], resources_by_host={"z": {}})


# -- real machines ------------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.process
@pytest.mark.server
class TestSSH(EngineContract):
    """The contract, on machines."""

    def check_stubborn(self, pid: int, warning: str) -> None:
        """Nobody can end an agent that ignores the end of its ssh, so the warning names it."""
        assert "node1" in warning
        assert "may still run" in warning
        os.kill(pid, signal.SIGKILL)
