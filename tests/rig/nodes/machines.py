"""Several "machines" on one: namespaces with an own network, host name, disk and sshd.

A machine has an own `/tmp` (its disk) and an own `/run`, and sees the other files of this machine,
which reaches it over a bridge. All names have this process's pid and a random part, so
that several suites can run at once; what a killed suite has left is removed by the next one.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from random import SystemRandom
from types import MappingProxyType
from urllib.parse import urlencode

from tests.rig import ROOT
from tests.rig.workers.processes import PATIENCE_S, wait_for_end

PROGRAMS = ("ip", "iptables", "nsenter", "unshare", "ssh", "ssh-keygen", "sshd")
# Where Debian has sshd and ip, also for users whose PATH lacks it.
_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
_NAME = re.compile(r"\bhf([0-9a-f]+)x[0-9a-f]{3}\b")

SSHD_CONFIG = """\
HostKey {keys}/{name}
AuthorizedKeysFile {keys}/client.pub
ListenAddress {address}
PidFile none
UsePAM no
StrictModes no
AllowUsers root
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitUserEnvironment no
UseDNS no
MaxStartups 100
SetEnv HOME=/tmp TMPDIR=/tmp
AcceptEnv HOLDFAST_TEST_* PYTHONPATH
"""
SSH_CONFIG = """\
Host {name}
  HostName {address}
  HostKeyAlias {name}
"""
# The key exchange that newer versions prefer takes 0.2 s of CPU.
SSH_DEFAULTS = """\
Host *
  User root
  IdentityFile {keys}/client
  IdentitiesOnly yes
  UserKnownHostsFile {keys}/known
  GlobalKnownHostsFile none
  StrictHostKeyChecking yes
  KexAlgorithms curve25519-sha256
  SendEnv HOLDFAST_TEST_* PYTHONPATH
"""


def missing() -> str:
    """Why there can be no machines here, or ""."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "machines in network namespaces need root on Linux"
    if absent := [name for name in PROGRAMS if not _found(name)]:
        return f"scripts/machines installs {', '.join(absent)}"
    with suppress(FileNotFoundError, subprocess.CalledProcessError):
        name = _free_name()
        _run("ip", "netns", "add", name)
        _run("ip", "netns", "del", name)
        return ""
    return "this machine does not let root make network namespaces"


def _code() -> Iterator[Path]:
    """This checkout, and its interpreter if that is elsewhere: each machine has them."""
    yield ROOT
    if not Path(sys.prefix).is_relative_to(ROOT):
        yield Path(sys.prefix)


class Machine:
    """One machine. `disk` is its `/tmp`, as this machine sees it."""

    def __init__(
        self, name: str, net: str, link: str, address: str, home: Path, shared: Sequence[Path]
    ) -> None:
        self.name = name
        self.address = address
        self.disk = home / f"disk-{name}"
        self._keys = home / "keys"
        self._net = net
        self._link = link
        self._sshd: subprocess.Popen[str] | None = None
        self._shared = shared

    def boot(self) -> None:
        """Start it, with its network, and wait until its sshd listens."""
        self.heal()
        self.disk.mkdir(exist_ok=True)
        self.disk.chmod(0o1777)
        config = self._keys / f"{self.name}.conf"
        config.write_text(
            SSHD_CONFIG.format(keys=self._keys, name=self.name, address=self.address)
        )
        self._sshd = subprocess.Popen(
            [
                *self.in_net,
                *("unshare", "--uts", "--mount", "sh", "-euc", self._boot_script(config)),
            ],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=_environ(),
        )
        _await_line(self._sshd, "Server listening")

    def _boot_script(self, config: Path) -> str:
        """Mount its disk with what it shares, and become its sshd."""
        lines = [f"hostname {self.name}"]
        for folder in (self._keys, *self._shared, *_code()):
            if folder.is_relative_to("/tmp"):  # its disk hides it
                place = self.disk / folder.relative_to("/tmp")
                lines += [f"mkdir -p {place}", f"mount --bind {folder} {place}"]
        lines += [
            f"mount --rbind {self.disk} /tmp",
            "mount -t tmpfs -o mode=755 tmpfs /run",
            "mkdir /run/sshd",
            f"exec {_found('sshd')} -D -e -f {config}",
        ]
        return "\n".join(lines)

    def power_off(self) -> None:
        """End everything in it without a word on its network. Its disk stays. `boot` starts it
        again."""
        self.unplug()
        self.kill_all()

    def kill_all(self) -> None:
        """Send SIGKILL to all its processes; its network stays up."""
        while pids := self.pids():
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._reap()
        self._reap()

    def _reap(self) -> None:
        if self._sshd is not None:
            self._sshd.wait(PATIENCE_S)
            assert self._sshd.stderr is not None
            self._sshd.stderr.close()
            self._sshd = None

    def pids(self) -> list[int]:
        """All its processes."""
        return [int(pid) for pid in _run("ip", "netns", "pids", self._net).split()]

    @property
    def in_net(self) -> list[str]:
        """The beginning of a command that runs on its network, with the files of this machine."""
        return ["nsenter", f"--net=/run/netns/{self._net}"]

    def wait_until_idle(self) -> None:
        """Wait until nothing but its sshd runs in it."""
        assert self._sshd is not None, f"{self.name} is off"
        while busy := [pid for pid in self.pids() if pid != self._sshd.pid]:
            wait_for_end(busy[0])

    def run(self, *command: str) -> str:
        """Run a command in it. Returns what it prints. Raises CalledProcessError."""
        assert self._sshd is not None, f"{self.name} is off"
        inside = f"--target={self._sshd.pid}", "--net", "--uts", "--mount"
        return _run("nsenter", *inside, *command)

    def received_bytes(self) -> int:
        """How many bytes have come over its link since it was made."""
        return int(Path(f"/sys/class/net/{self._link}/statistics/tx_bytes").read_text())

    def unplug(self) -> None:
        """Its link is down, in both directions; `heal` ends that."""
        _run("ip", "link", "set", self._link, "down")

    def drop(self, *chains: str, rule: Sequence[str] = ()) -> None:
        """Its firewall drops the packets of these chains, by default of both directions, which
        match the rule; `heal` ends that."""
        for chain in chains or ("INPUT", "OUTPUT"):
            self._in_net("iptables", "-w", "-I", chain, *rule, "-j", "DROP")

    def heal(self) -> None:
        """End what `unplug` and `drop` did."""
        _run("ip", "link", "set", self._link, "up")
        self._in_net("iptables", "-w", "-F")

    def _in_net(self, *command: str) -> None:
        _run(*self.in_net, *command)


class Machines:
    """`count` machines that are running. `address` is this machine's, as they see it."""

    def __init__(
        self,
        count: int,
        home: Path,
        shared: Sequence[Path] = (),
        only: Mapping[str, Sequence[Path]] = MappingProxyType({}),
    ) -> None:
        self._home = home
        self._keys = home / "keys"
        self._bridge = _free_name()
        subnet = _free_subnet()
        self.address = f"{subnet}.1"
        self.all = [
            Machine(
                name := f"node{number}",
                f"{self._bridge}-{number}",
                f"{self._bridge}v{number}",
                f"{subnet}.{10 + number}",
                home,
                (*shared, *only.get(name, ())),
            )
            for number in range(1, count + 1)
        ]

    def __getitem__(self, number: int) -> Machine:
        return self.all[number]

    def __len__(self) -> int:
        return len(self.all)

    @property
    def names(self) -> list[str]:
        return [machine.name for machine in self.all]

    @property
    def ssh(self) -> list[str]:
        """The command of ssh that knows the machines by their names."""
        return ["ssh", "-F", str(self._home / "ssh_config")]

    def cluster(self, count: int | None = None, /, **settings: object) -> str:
        """The first `count` of them, or all, as HOLDFAST_CLUSTER with these settings."""
        python = f"env PYTHONPATH={ROOT} {sys.executable}"
        query = {"python": python, "ssh": " ".join(self.ssh), **settings}
        return f"ssh://{','.join(self.names[:count])}?{urlencode(query)}"

    def wait_until_idle(self) -> None:
        """Wait until nothing but sshd runs on any of them."""
        for machine in self.all:
            machine.wait_until_idle()

    def up(self) -> None:
        self._keys.mkdir()
        lines = [
            f"link add {self._bridge} type bridge",
            f"addr add {self.address}/24 dev {self._bridge}",
            f"link set {self._bridge} up",
        ]
        for number, machine in enumerate(self.all, 1):
            net, link = f"{self._bridge}-{number}", f"{self._bridge}v{number}"
            lines += [
                f"netns add {net}",
                f"link add {link} type veth peer name eth0 netns {net}",
                f"link set {link} master {self._bridge} up",
                f"-n {net} addr add {machine.address}/24 dev eth0",
                f"-n {net} link set eth0 up",
                f"-n {net} link set lo up",
            ]
        for line in lines:
            _run("ip", *line.split())
        self._make_keys()
        for machine in self.all:
            machine.boot()

    def _make_keys(self) -> None:
        for name in ("client", *self.names):
            key = str(self._keys / name)
            _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", key)
        hosts = [
            f"{machine.name} {(self._keys / f'{machine.name}.pub').read_text()}"
            for machine in self.all
        ]
        (self._keys / "known").write_text("".join(hosts))
        blocks = [SSH_CONFIG.format(name=one.name, address=one.address) for one in self.all]
        defaults = SSH_DEFAULTS.format(keys=self._keys)
        (self._home / "ssh_config").write_text("".join([*blocks, defaults]))

    def down(self) -> None:
        for machine in self.all:
            with suppress(subprocess.CalledProcessError):  # it was never up
                machine.kill_all()
        _remove(self._bridge)
        for machine in self.all:
            shutil.rmtree(machine.disk, ignore_errors=True)


@contextmanager
def machines(
    count: int,
    home: Path,
    shared: Sequence[Path] = (),
    only: Mapping[str, Sequence[Path]] = MappingProxyType({}),
) -> Iterator[Machines]:
    """Machines whose disks and keys are in the folder `home`, and which see the folders `shared`
    under the same paths, or those that `only` the machine of this name sees. Removes everything at
    the end."""
    _remove_stale()
    made = Machines(count, home, shared, only)
    try:
        made.up()
        yield made
    finally:
        made.down()


def _found(program: str) -> str:
    return shutil.which(program, path=_PATH) or ""


def _environ() -> dict[str, str]:
    return {**os.environ, "PATH": _PATH}


def _run(*command: str) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE_S, env=_environ(), check=False
    )
    if done.returncode:
        print(done.stderr, file=sys.stderr)
    done.check_returncode()
    return done.stdout


def _await_line(process: subprocess.Popen[str], wanted: str) -> None:
    """Read its stderr until this line comes. Raises AssertionError if it ends before."""
    assert process.stderr is not None
    read: list[str] = []
    for line in process.stderr:
        read.append(line)
        if wanted in line:
            return
    raise AssertionError(f"sshd did not start: {''.join(read)}")


def _free_name() -> str:
    """A name for a bridge: with this process's pid and a random part."""
    return f"hf{os.getpid():x}x{secrets.token_hex(2)[:3]}"


def _free_subnet() -> str:
    used = _run("ip", "-4", "route", "show", "table", "all")
    while True:
        subnet = f"10.{SystemRandom().randrange(128, 255)}.{SystemRandom().randrange(256)}"
        if f"{subnet}." not in used:
            return subnet


def _remove(bridge: str) -> None:
    """Remove a bridge and the networks of its machines."""
    for line in _run("ip", "netns", "list").splitlines():
        net = line.split()[0]
        if net.startswith(f"{bridge}-"):
            for pid in _run("ip", "netns", "pids", net).split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            _run("ip", "netns", "del", net)
    if bridge in _run("ip", "-o", "link", "show"):
        _run("ip", "link", "del", bridge)


def _remove_stale() -> None:
    """Remove what suites that were killed have left."""
    listed = _run("ip", "-o", "link", "show") + _run("ip", "netns", "list")
    for found in {match.group(): match.group(1) for match in _NAME.finditer(listed)}.items():
        name, pid = found
        if not Path(f"/proc/{int(pid, 16)}").exists():
            with suppress(subprocess.CalledProcessError):  # another suite removes it now
                _remove(name)
