"""A real Slurm on four "machines" of one: network namespaces, each with a slurmd.

Everything has its own names, ports, keys and folders: nothing of the system's Slurm is used, and
several clusters can run at a time. It needs root and Debian's `munge` and `slurm-wlm`
(`scripts/machines`).
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from holdfast.dataclass import dataclass

PROGRAMS = (
    "ip", "munged", "nsenter", "sbatch", "scontrol", "setpriv", "slurmctld", "slurmd", "unshare"
)  # fmt: skip
_SYSTEM_PATH = "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"
_SPACE = re.compile(r"hfs([0-9a-f]+)([0-9a-f]{2})n\d")
_READY_S = 60.0
_COMMAND_S = 30.0
# From SIGTERM to SIGKILL. In that time a trial saves, also on a busy machine.
KILL_WAIT_S = 10
# It lives for the whole session: its processes, and the agents of a test that has killed its own
# script, are not left over from a test.
_NOT_OF_A_TEST = {"HOLDFAST_TEST_MARK": ""}

_CONF = """\
ClusterName=holdfast
SlurmctldHost=ctl({gateway})
SlurmctldPort={ctl_port}
SlurmdPort={node_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={root}/munge.socket
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
GresTypes=gpu
SlurmdParameters=config_overrides
ReturnToService=2
SlurmctldTimeout=10
SlurmdTimeout=10
InactiveLimit=0
OverTimeLimit=0
GetEnvTimeout=0
KillWait={kill_wait}
MinJobAge=60
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0,sched_min_interval=0
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool-%n
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd-%n.pid
SlurmctldLogFile={root}/log/slurmctld.log
SlurmdLogFile={root}/log/slurmd-%n.log
JobCompType=jobcomp/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=short Nodes=ALL MaxTime=10 State=UP PriorityTier=1
PartitionName=high Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=10
"""
_USABLE = {"idle", "mix", "alloc", "comp"}
# How many CPUs and GPUs each node has.
_NODES = {"n1": (8, 2), "n2": (4, 0), "n3": (4, 0), "n4": (4, 0)}


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmCluster:
    """A running cluster. Commands find it by `environ`. Agents reach this process at `address`."""

    folder: Path
    address: str
    nodes: Sequence[str]
    environ: dict[str, str]

    def run(self, *command: str, stdin: str = "") -> str:
        """Run a command as on the login node; its output. Raises AssertionError."""
        done = subprocess.run(
            command,
            input=stdin,
            env={**os.environ, **self.environ},
            capture_output=True,
            text=True,
            timeout=_COMMAND_S,
            check=False,
        )
        if done.returncode:
            raise AssertionError(f"{command} failed:\n{done.stdout}{done.stderr}")
        return done.stdout

    def environ_of_commands(self) -> dict[str, str]:
        """What a command of Slurm's needs in its environment."""
        return {"PATH": _SYSTEM_PATH, "HOME": os.environ["HOME"], **self.environ}

    def is_whole(self) -> bool:
        """Whether Slurm can use all nodes."""
        try:
            found = self.run("sinfo", "--noheader", "--Node", "--partition=main", "--format=%t")
        except AssertionError:
            return False
        return len(found.split()) == len(self.nodes) and {*found.split()} <= _USABLE

    def log(self) -> str:
        """The last lines of all its logs, for a failing test."""
        return "".join(
            f"--- {path.name}\n{path.read_text(errors='replace')[-2000:]}"
            for path in sorted((self.folder / "log").glob("*"))
        )


def missing() -> str:
    """Why no Slurm can be started here; "" if one can."""
    if os.geteuid():
        return "only root can make network namespaces"
    absent = [name for name in PROGRAMS if shutil.which(name, path=_SYSTEM_PATH) is None]
    return f"{', '.join(absent)} not installed (scripts/machines)" if absent else ""


@contextmanager
def slurm_cluster() -> Iterator[SlurmCluster]:
    """Start a cluster; at the end, end everything that runs in it.

    Raises RuntimeError with the logs if it does not start.
    """
    with ExitStack() as stack:
        # The path of a socket is limited to 107 bytes, and all users must see munge's.
        root = Path(tempfile.mkdtemp(prefix="holdfast-slurm-", dir="/tmp"))
        stack.callback(shutil.rmtree, root, ignore_errors=True)
        root.chmod(0o755)
        _sweep()
        tag = f"{os.getpid():x}{secrets.token_hex(1)}"
        network = stack.enter_context(_network(tag))
        cluster = _configure(root, network)
        stack.enter_context(_munge(root))
        stack.callback(_end_all, [f"hfs{tag}{name}" for name in _NODES])
        daemons = {"slurmctld": _in_host("ctl", "slurmctld", "-D", "-i")}
        for name in _NODES:
            daemons[name] = [
                "nsenter", f"--net=/run/netns/hfs{tag}{name}", *_in_host(name, "slurmd", "-D")
            ]  # fmt: skip
        for name, command in daemons.items():
            stack.enter_context(_daemon(command, root / "log" / f"{name}.out", cluster.environ))
        wait_until(cluster.is_whole, cluster.log)
        yield cluster


def _configure(root: Path, network: str) -> SlurmCluster:
    for folder in ("log", "state", *(f"spool-{name}" for name in _NODES)):
        (root / folder).mkdir()
    for device in ("gpu0", "gpu1"):
        os.mknod(root / device, 0o20666, os.makedev(1, 3))
    (root / "gres.conf").write_text(f"NodeName=n1 Name=gpu File={root}/gpu[0-1]\n")
    lines = [
        f"NodeName={name} NodeAddr={network}.{10 + number} CPUs={cpus} RealMemory=4000 "
        f"{f'Gres=gpu:{gpus} ' if gpus else ''}State=UNKNOWN"
        for number, (name, (cpus, gpus)) in enumerate(_NODES.items(), 1)
    ]
    # A login shell, whose environment `--export=NONE` gives to a job, may take seconds.
    (root / "state" / "env_cache").mkdir()
    (root / "state" / "env_cache" / "root").write_text(f"HOME=/root\nPATH={_SYSTEM_PATH}\n")
    ctl_port, node_port = _free_ports()
    conf = root / "slurm.conf"
    conf.write_text(
        _CONF.format(
            root=root,
            gateway=f"{network}.1",
            ctl_port=ctl_port,
            node_port=node_port,
            kill_wait=KILL_WAIT_S,
            nodes="\n".join(lines),
        )
    )
    environ = {"SLURM_CONF": str(conf), **_NOT_OF_A_TEST}
    return SlurmCluster(folder=root, address=f"{network}.1", nodes=tuple(_NODES), environ=environ)


@contextmanager
def _network(tag: str) -> Iterator[str]:
    """A bridge at `NETWORK.1` and a namespace per node; yields the first three parts of the
    addresses."""
    with ExitStack() as stack:
        network = _unused_network()
        bridge = f"hfb{tag}"
        _ip("link", "add", bridge, "type", "bridge")
        stack.callback(_ip, "link", "del", bridge)
        _ip("addr", "add", f"{network}.1/24", "dev", bridge)
        _ip("link", "set", bridge, "up")
        for number, name in enumerate(_NODES, 1):
            space, cable = f"hfs{tag}{name}", f"hfv{tag}{number}"
            _ip("netns", "add", space)
            stack.callback(_ip, "netns", "del", space)
            _ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", space)
            _ip("link", "set", cable, "master", bridge, "up")
            _ip("-n", space, "addr", "add", f"{network}.{10 + number}/24", "dev", "eth0")
            _ip("-n", space, "link", "set", "eth0", "up")
            _ip("-n", space, "link", "set", "lo", "up")
        yield network


def _sweep() -> None:
    """Remove what a test run has left that was killed. Names have its process id."""
    for space in _ip("netns", "list").split():
        if (found := _SPACE.fullmatch(space)) and not os.path.exists(f"/proc/{int(found[1], 16)}"):
            # Another test process may sweep, too; the bridge goes with the first space.
            with suppress(RuntimeError):
                _end_all([space])
                _ip("netns", "del", space)
                _ip("link", "del", f"hfb{found[1]}{found[2]}")


def _unused_network() -> str:
    used = _ip("-4", "-o", "addr", "show")
    while True:
        network = f"10.{64 + secrets.randbelow(64)}.{secrets.randbelow(256)}"
        if f" {network}." not in used:
            return network


def _ip(*arguments: str) -> str:
    done = subprocess.run(
        ["ip", *arguments], env={"PATH": _SYSTEM_PATH}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"ip {' '.join(arguments)}: {done.stderr}")
    return done.stdout


def _free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as two:
        one.bind(("", 0))
        two.bind(("", 0))
        return one.getsockname()[1], two.getsockname()[1]


@contextmanager
def _munge(root: Path) -> Iterator[None]:
    key = root / "munge.key"
    key.write_bytes(secrets.token_bytes(1024))
    key.chmod(0o400)
    files = {"key-file": "key", "socket": "socket", "log-file": "log", "pid-file": "pid"}
    options = [f"--{option}={root}/munge.{name}" for option, name in files.items()]
    command = ["munged", "--foreground", "--force", f"--seed-file={root}/munge.seed", *options]
    with _daemon(command, root / "log" / "munge.out", {}) as process:
        wait_until(lambda: (root / "munge.socket").exists() or process.poll() is not None)
        if process.poll() is not None:
            raise RuntimeError(f"munged: {(root / 'log' / 'munge.out').read_text()}")
        yield


def _in_host(name: str, *command: str) -> list[str]:
    return ["unshare", "--uts", "sh", "-c", f'hostname {name}; exec "$@"', "sh", *command]


@contextmanager
def _daemon(
    command: Sequence[str], log: Path, environ: dict[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """A daemon that dies with this process."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "--", *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={"PATH": _SYSTEM_PATH, "HOME": "/root", **environ},
            start_new_session=True,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait(_COMMAND_S)


def _end_all(spaces: Sequence[str]) -> None:
    """Kill every process in the namespaces: a job outlives its slurmd."""
    for space in spaces:
        while pids := _ip("netns", "pids", space).split():
            for pid in map(int, pids):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def wait_until(ready: Callable[[], bool], told: Callable[[], str] = str) -> None:
    """Look until it is so: Slurm reports nothing. Raises AssertionError after a minute."""
    deadline = time.monotonic() + _READY_S
    while not ready():
        assert time.monotonic() < deadline, told()
        time.sleep(0.05)
