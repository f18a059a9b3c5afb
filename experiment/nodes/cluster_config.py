"""The clusters that `holdfast.init(cluster=...)` accepts, as frozen settings."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.plain_numbers import is_number, plain_number
from holdfast.trial.errors import require
from holdfast.trial.resources import validated

_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@:%\[\]-]*")
# Slurm's forms of a time limit: minutes, minutes:seconds, hours:minutes:seconds, and days-...
_TIME = re.compile(r"\d+(:\d+){0,2}|\d+-\d+(:\d+){0,2}")
_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.,:/+-]*")

Count = int | tuple[int, int]
Command = str | Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTerms:
    """What holds for every node of a cluster.

    The resources of a node are detected there; `cpus_per_node`, `gpus_per_node` and
    `resources_per_node` (custom ones, by name) replace what was detected. `python` is the command
    of the interpreter on the nodes, which has holdfast and your packages: a path, or a list with a
    prefix, such as `["apptainer", "exec", "image.sif", "python3"]`. Workers write below `scratch`
    on their node; None for the folder of temporary files there. Agents connect to this machine at
    `controller_address`, a host name or an IP address of it; None to find it out. An agent has
    `start_s` seconds to start. If the number of nodes is (least, most), a node that has had no
    work for `idle_s` seconds is given back.
    """

    cpus_per_node: float | None = None
    gpus_per_node: int | None = None
    resources_per_node: Mapping[str, float] | None = None
    python: Command | None = None
    scratch: str | None = None
    controller_address: str | None = None
    idle_s: float = 60.0
    start_s: float = 60.0

    def check_terms(self) -> None:
        """Make numbers plain. Raise InvalidConfig for a setting that is not valid."""
        for one in fields(self):
            value = getattr(self, one.name)
            several = tuple(map(plain_number, value)) if isinstance(value, tuple) else value
            object.__setattr__(self, one.name, plain_number(several))
        where = type(self).__name__
        for name, amount in self.resources().items():
            require(
                name != "GPU" or amount == int(amount),
                f"{where}(gpus_per_node={amount!r}): must be a whole number",
            )
        for name in ("scratch", "controller_address"):
            _check_text(where, name, getattr(self, name))
        if self.python is not None:
            _check_command(where, "python", self.python)
        for name, least in (("idle_s", 0.0), ("start_s", 1.0)):
            seconds = getattr(self, name)
            require(
                is_number(seconds) and least <= seconds < math.inf,
                f"{where}({name}={seconds!r:.100}): must be a number of seconds from {least:g} on",
            )

    def resources(self) -> dict[str, float]:
        """The resources that each node has by these settings; those that are not set are
        detected."""
        where = type(self).__name__
        given: dict[str, float] = {}
        if self.cpus_per_node is not None:
            given["CPU"] = self.cpus_per_node
        if self.gpus_per_node is not None:
            given["GPU"] = self.gpus_per_node
        more = self.resources_per_node or {}
        require(
            isinstance(more, Mapping),
            f"{where}(resources_per_node={more!r:.100}): pass a dict such as {{'tpu': 1}}",
        )
        return validated({**given, **more}, where=where)


@dataclass(frozen=True, slots=True)
class Local(NodeTerms):
    """`agents` agents as processes of this machine: to try out a script for several nodes.

    `agents` is a number, or (least, most): then agents are started while trials wait, and ended
    when they have no work. Each agent counts as a node with its share of this machine's resources,
    and with one CPU at least, unless they are set. Raises InvalidConfig.
    """

    agents: Count = 2

    def __post_init__(self) -> None:
        self.check_terms()
        _check_span("Local", "agents", self.agents)


@dataclass(frozen=True, slots=True)
class SSH(NodeTerms):
    """One agent on each of `hosts`, started by the system's `ssh`, which needs no password.

    A host is a name that `ssh` knows: `node7`, `me@node7`, an alias of ~/.ssh/config. `ssh` is the
    command with options of your own. Frames travel over the connection of ssh, so no port is
    opened. `nodes` limits how many hosts are used at a time: a number, or (least, most), as with
    Slurm; None for all. Raises InvalidConfig.
    """

    hosts: Sequence[str]
    ssh: Command = "ssh"
    nodes: Count | None = None

    def __post_init__(self) -> None:
        self.check_terms()
        _check_command("SSH", "ssh", self.ssh)
        is_list = isinstance(self.hosts, Sequence) and not isinstance(self.hosts, str)
        require(
            is_list and len(self.hosts) > 0,
            f'SSH(hosts={self.hosts!r:.100}): pass a list of host names, such as ["a", "b"]',
        )
        for host in self.hosts:
            require(
                isinstance(host, str) and bool(_HOST.fullmatch(host)),
                f"SSH(hosts=...): {host!r:.100} is not a host name that ssh knows",
            )
        require(len(set(self.hosts)) == len(self.hosts), "SSH(hosts=...): a host is listed twice")
        if self.nodes is not None:
            _check_span("SSH", "nodes", self.nodes)
            require(
                span_of(self.nodes)[0] <= len(self.hosts),
                f"SSH(nodes={self.nodes!r}): only {len(self.hosts)} hosts are listed",
            )


@dataclass(frozen=True, slots=True)
class Slurm(NodeTerms):
    """Nodes of Slurm, one job each, from a login node; inside an allocation its own nodes, unless
    `partition`, `time`, `memory_per_node`, `account` or `options` ask for jobs.

    Without `cpus_per_node` and `gpus_per_node`, a job gets the whole machine.
    `nodes` is a number, or (least, most): then jobs are added while trials wait, and given back
    when a node has no work. `time` is the limit of each job, as Slurm writes it ("08:00:00").
    `options` are further arguments of sbatch (`["--qos=long"]`). `folder` is a directory that all
    nodes see, for the invitations of agents and the output of jobs; None for ~/.holdfast/slurm.
    Raises InvalidConfig.
    """

    nodes: Count | None = None
    partition: str | None = None
    time: str | None = None
    memory_per_node: str | None = None
    account: str | None = None
    options: Sequence[str] = ()
    folder: str | None = None

    def __post_init__(self) -> None:
        self.check_terms()
        if self.nodes is not None:
            _check_span("Slurm", "nodes", self.nodes)
        for name in ("partition", "account", "memory_per_node"):
            value = getattr(self, name)
            require(
                value is None or (isinstance(value, str) and bool(_WORD.fullmatch(value))),
                f"Slurm({name}={value!r:.100}): is not a name that Slurm could know",
            )
        require(
            self.time is None or (isinstance(self.time, str) and bool(_TIME.fullmatch(self.time))),
            f'Slurm(time={self.time!r:.100}): write it as Slurm does, for example "08:00:00"',
        )
        is_list = isinstance(self.options, Sequence) and not isinstance(self.options, str)
        require(
            is_list and all(isinstance(one, str) and one.startswith("-") for one in self.options),
            f"Slurm(options={self.options!r:.100}): pass a list of arguments of sbatch, such as "
            f'["--qos=long"]',
        )
        _check_text("Slurm", "folder", self.folder)


@dataclass(frozen=True, slots=True)
class Dask(NodeTerms):
    """The workers of a Dask cluster, one agent on each; `scheduler` is its address or a Client.

    `nodes` limits how many are used: a number, or (least, most); None for all. A `tcp://` address
    is refused unless `insecure`: everybody who can reach the scheduler could read the credentials
    of the agents. Raises InvalidConfig.
    """

    scheduler: Any
    nodes: Count | None = None
    insecure: bool = False

    def __post_init__(self) -> None:
        self.check_terms()
        if self.nodes is not None:
            _check_span("Dask", "nodes", self.nodes)


@dataclass(frozen=True, slots=True)
class Ray(NodeTerms):
    """The nodes of a Ray cluster, one agent on each; `address` as for `ray.init`.

    `nodes` limits how many are used: a number, or (least, most); None for all. A cluster without
    TLS is refused unless `insecure`, as with Dask. Raises InvalidConfig.
    """

    address: str = "auto"
    nodes: Count | None = None
    insecure: bool = False

    def __post_init__(self) -> None:
        self.check_terms()
        if self.nodes is not None:
            _check_span("Ray", "nodes", self.nodes)
        _check_text("Ray", "address", self.address)


Cluster = Local | SSH | Slurm | Dask | Ray
CLUSTERS = (Local, SSH, Slurm, Dask, Ray)


def _check_count(where: str, name: str, count: object) -> None:
    require(
        isinstance(count, int) and not isinstance(count, bool) and 1 <= count <= 10_000,
        f"{where}({name}={count!r:.100}): must be a whole number from 1 to 10,000",
    )


def _check_span(where: str, name: str, given: object) -> None:
    if isinstance(given, (tuple, list)):
        require(
            len(given) == 2
            and all(isinstance(one, int) and not isinstance(one, bool) for one in given)
            and 0 <= given[0] <= given[1] <= 10_000
            and given[1] >= 1,
            f"{where}({name}={given!r:.100}): (least, most) must be two whole numbers, the first "
            f"not above the second",
        )
    else:
        _check_count(where, name, given)


def span_of(count: Count) -> tuple[int, int]:
    """The least and the greatest number of nodes."""
    return (count, count) if isinstance(count, int) else (count[0], count[1])


def _check_text(where: str, name: str, value: object) -> None:
    is_plain = isinstance(value, str) and bool(value) and value.isprintable()
    require(value is None or is_plain, f"{where}({name}={value!r:.100}): must be a line of text")


def _check_command(where: str, name: str, command: object) -> None:
    words = [command] if isinstance(command, str) else command
    is_list = isinstance(words, Sequence) and len(words) > 0
    require(
        is_list
        and all(
            isinstance(word, str) and bool(word) and word.isprintable()
            for word in (words if isinstance(words, Sequence) else ())
        ),
        f"{where}({name}={command!r:.100}): pass a command as a text, or as a list of its words",
    )


def words_of(command: Command | None, default: Sequence[str]) -> tuple[str, ...]:
    """A command as a list of words: a text is one word, the program itself."""
    if command is None:
        return tuple(default)
    return (command,) if isinstance(command, str) else tuple(command)
