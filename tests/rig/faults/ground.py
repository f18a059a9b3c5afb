"""The machines, the links and the bucket of a campaign across nodes, and their faults."""

from __future__ import annotations

import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from tests.rig.faults.ills import AtRandom, Ill, Some, Well
from tests.rig.faults.node_mishaps import OF_THE_BUCKET, Blow
from tests.rig.nodes.machines import Machine, Machines, machines
from tests.rig.script import Process, UserScript
from tests.rig.storage.proxy import Proxy
from tests.rig.storage.s3_server import S3Server, make_bucket, moto_server

_DISK_BYTES: Final = 48 << 20
_FILLER: Final = "filler"
# ssh of a scenario: it may fail or hang instead, as often as there are files.
_SSH: Final = """\
#!/bin/sh
for ill in {ills}/*; do
    mv "$ill" {taken}/ 2>/dev/null || continue
    case "$ill" in
        *fails) echo "ssh: connect to host: Connection refused" >&2; exit 255;;
        *hangs) exec sleep 1000;;
    esac
done
exec {ssh} "$@"
"""
# Whom a signal meets.
_ROLES: Final = {
    Blow.AGENT_KILL: "agent",
    Blow.AGENT_STOP: "agent",
    Blow.AGENT_STOP_BRIEFLY: "agent",
    Blow.AGENT_TERM: "agent",
    Blow.WORKER_KILL: "worker",
    Blow.WARM_KILL: "warm",
    Blow.KEEPER_KILL: "uploader",
    Blow.SSH_KILL: "ssh",
    Blow.SSH_STOP: "ssh",
    Blow.SSH_STOP_BRIEFLY: "ssh",
    Blow.SCRIPT_KILL: "script",
    Blow.SCRIPT_STOP: "script",
    Blow.SCRIPT_STOP_BRIEFLY: "script",
}
_FAILING: Final = (Ill.ERROR, Ill.SLOW_DOWN)


class Ground:
    """The last of the machines is the controller's; the bucket's server is on this machine, and
    all reach it over the bridge."""

    def __init__(self, made: Machines, server: S3Server, folder: Path) -> None:
        self.folder = folder
        self.server = server
        self._made = made
        self.address = made.address
        self.controller = made[-1]
        self.nodes = made.all[:-1]
        self._off: set[str] = set()
        self._stopped: list[Process] = []
        self._ills, self._taken = folder / "ills", folder / "taken"
        for place in (self._ills, self._taken):
            place.mkdir()
        self._ssh = folder / "ssh"
        self._ssh.write_text(
            _SSH.format(ills=self._ills, taken=self._taken, ssh=shlex.join(made.ssh))
        )
        self._ssh.chmod(0o700)

    def cluster(self, count: int) -> str:
        """The first nodes, with one CPU each."""
        return self._made.cluster(count, cpus_per_node=1, ssh=str(self._ssh))

    # -- faults -------------------------------------------------------------------------------

    def prepare(self, blow: Blow) -> None:
        """Before the script starts: what ssh will do instead of its work."""
        if blow is Blow.SSH_FAILS:
            for number in range(1, len(self.nodes)):  # if no host worked, the run would end
                (self._ills / f"{number}-fails").touch()
        elif blow is Blow.SSH_HANGS:
            (self._ills / "hangs").touch()

    def has_been_ill(self) -> bool:
        """Whether ssh has done something else instead of its work."""
        return any(self._taken.iterdir())

    def deal(
        self, blow: Blow, nodes: Sequence[Machine], script: UserScript, proxy: Proxy
    ) -> Machine | None:
        """Hit the first of the nodes that has what is hit. Returns it."""
        if blow in OF_THE_BUCKET:
            _disturb(blow, proxy)
        elif (role := _ROLES.get(blow)) is None:
            self._disconnect(blow, nodes[0], proxy)
        else:
            struck = (
                node for node in nodes if self._strike(blow, self._victims(node, script, role))
            )
            return next(struck, None)
        return nodes[0]

    def _disconnect(self, blow: Blow, node: Machine, proxy: Proxy) -> None:
        match blow:
            case Blow.POWER_OFF | Blow.REBOOT:
                self._switch_off(node)
            case Blow.REBOOT_ALL:
                for each in self.nodes:
                    self._switch_off(each)
            case Blow.CONTROLLER_OFF:
                self._switch_off(self.controller)
            case Blow.DEATHS:
                self._off.add(node.name)
                node.kill_all()
            case Blow.UNPLUG | Blow.UNPLUG_BRIEFLY:
                node.unplug()
            case Blow.CONTROLLER_UNPLUG | Blow.CONTROLLER_UNPLUG_BRIEFLY:
                self.controller.unplug()
            case Blow.DROP | Blow.DROP_BRIEFLY:
                node.drop()
            case Blow.DROP_IN:
                node.drop("INPUT")
            case Blow.DROP_OUT:
                node.drop("OUTPUT")
            case Blow.NO_BUCKET:
                node.drop("OUTPUT", rule=["-p", "tcp", "--dport", str(proxy.port)])
            case Blow.DISK_FULL:
                _fill(node.disk)
            case _:
                raise AssertionError(f"nothing is known of {blow!r}")
        if blow is Blow.REBOOT:
            self._boot(node)
        elif blow is Blow.REBOOT_ALL:
            self._boot_all()

    def _switch_off(self, machine: Machine) -> None:
        self._off.add(machine.name)
        machine.power_off()

    def _boot(self, machine: Machine) -> None:
        machine.boot()
        self._off.discard(machine.name)

    def _boot_all(self) -> None:
        for machine in (*self.nodes, self.controller):
            if machine.name in self._off:
                self._boot(machine)

    def _victims(self, node: Machine, script: UserScript, role: str) -> list[Process]:
        """Its processes of this role; for ssh those that lead to it, in the controller's place."""
        machine = self.controller if role in ("ssh", "script") else node
        there = set(machine.pids())
        found = [process for process in script.processes() if process.pid in there]
        if role == "ssh":
            return [each for each in found if _leads_to(each.pid, node.name)]
        return [each for each in found if each.role == role]

    def _strike(self, blow: Blow, victims: Sequence[Process]) -> bool:
        for victim in victims:
            with suppress(ProcessLookupError):
                if "STOP" in blow.name:
                    victim.signal(signal.SIGSTOP)
                    self._stopped.append(victim)
                else:
                    victim.signal(signal.SIGTERM if blow is Blow.AGENT_TERM else signal.SIGKILL)
        return bool(victims)

    def busy(self, script: UserScript) -> list[Machine]:
        """The nodes that have a worker; all of them if none has."""
        workers = {process.pid for process in script.processes("worker")}
        found = [node for node in self.nodes if node.name not in self._off]
        return [node for node in found if workers.intersection(node.pids())] or self.nodes

    # -- and their end ------------------------------------------------------------------------

    def undo(self, proxy: Proxy) -> None:
        """Everything works again: networks, machines, disks and the bucket."""
        proxy.strike(Well())
        if proxy.is_gone:
            proxy.come_back()
        for process in self._stopped:
            with suppress(ProcessLookupError):
                process.signal(signal.SIGCONT)
        self._stopped.clear()
        self._boot_all()
        for machine in (*self.nodes, self.controller):
            machine.heal()
            (machine.disk / _FILLER).unlink(missing_ok=True)

    def cure(self) -> None:
        """ssh works from now on."""
        for path in self._ills.iterdir():
            path.unlink()

    def clear(self) -> None:
        """For the next scenario."""
        self.cure()
        for path in self._taken.iterdir():
            path.unlink()
        for node in self.nodes:
            for path in node.disk.glob("holdfast-kept-*"):
                shutil.rmtree(path)

    def leftovers(self, node: Machine) -> list[str]:
        """What agents have left on its disk, with some of the files."""
        found = []
        for path in node.disk.glob("holdfast-nodes-*/*"):
            files = [str(each.relative_to(path)) for each in path.rglob("*")]
            found.append(f"{path.relative_to(node.disk)} with {len(files)}: {files[:8]}")
        return found


@contextmanager
def ground(nodes: int, folder: Path) -> Iterator[Ground]:
    """Machines with small disks that live as long as the campaign, and a bucket."""
    home = folder / "machines"
    with ExitStack() as stack:
        for number in range(1, nodes + 2):
            stack.enter_context(_small_disk(home / f"disk-node{number}"))
        server = stack.enter_context(moto_server())
        make_bucket(server, "bucket")
        made = stack.enter_context(machines(nodes + 1, home))
        yield Ground(made, server, folder)


def remove_stale(base: Path, prefix: str) -> None:
    """Remove the disks of campaigns that were killed: their folders have this prefix and a pid."""
    for folder in base.glob(f"{prefix}*"):
        pid = folder.name.removeprefix(prefix).partition("-")[0]
        if not Path("/proc", pid).exists():
            for disk in folder.glob("machines/disk-*"):
                subprocess.run(["umount", "--lazy", disk], check=False, capture_output=True)
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _small_disk(place: Path) -> Iterator[None]:
    place.mkdir(parents=True)
    options = f"size={_DISK_BYTES},mode=1777"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


def _leads_to(pid: int, host: str) -> bool:
    """Whether this is an ssh to the host."""
    with suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        return Path(words[0]).name == "ssh" and host in words
    return False


def _fill(disk: Path) -> None:
    """Leave not one free byte."""
    with (disk / _FILLER).open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(1 << 16))


def _disturb(blow: Blow, proxy: Proxy) -> None:
    match blow:
        case Blow.BUCKET_FAILS:
            proxy.strike(AtRandom(ills=_FAILING, probability=0.5, seed=1))
        case Blow.BUCKET_RESETS:
            proxy.strike(Some(ill=Ill.RESET, at=1, times=8))
        case Blow.BUCKET_STALLS:
            proxy.stall()
        case _:
            proxy.vanish()
