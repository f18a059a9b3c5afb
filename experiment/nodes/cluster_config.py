"""The clusters that `holdfast.init(cluster=...)` and `HOLDFAST_CLUSTER` accept: frozen settings.

As URIs: `local://?agents=2`, `ssh://a,me@b?cpus_per_node=4`, `slurm://gpu?nodes=4&time=08:00:00`,
`dask://host:8786`, `ray://host:10001`, and `auto`: the nodes of the Slurm allocation that the
script runs in.
"""

from __future__ import annotations

import dataclasses
import math
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from holdfast.dataclass import dataclass
from holdfast.plain_numbers import is_number, plain_number
from holdfast.trial.errors import InvalidConfig, require
from holdfast.trial.metrics import near_text
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

    def __post_init__(self) -> None:
        """Make numbers plain. Raise InvalidConfig for a setting that is not valid."""
        where = type(self).__name__
        for one in fields(self):
            value = getattr(self, one.name)
            is_span = isinstance(value, tuple)
            value = tuple(map(plain_number, value)) if is_span else plain_number(value)
            object.__setattr__(self, one.name, value)
            if value is not None and one.name in CHECKS:
                CHECKS[one.name](value, f"{where}({one.name}={value!r:.100})")
        for name, amount in self.resources().items():
            require(
                name != "GPU" or amount == int(amount),
                f"{where}(gpus_per_node={amount!r}): must be a whole number",
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
        NodeTerms.__post_init__(self)  # `super()` finds no class with slots
        require(
            self.nodes is None or span_of(self.nodes)[0] <= len(self.hosts),
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


@dataclass(frozen=True, slots=True)
class Ray(NodeTerms):
    """The nodes of a Ray cluster, one agent on each; `address` as for `ray.init`.

    `nodes` limits how many are used: a number, or (least, most); None for all. A cluster without
    TLS is refused unless `insecure`, as with Dask. Raises InvalidConfig.
    """

    address: str = "auto"
    nodes: Count | None = None
    insecure: bool = False


Cluster = Local | SSH | Slurm | Dask | Ray
CLUSTERS = (Local, SSH, Slurm, Dask, Ray)


def span_of(count: Count) -> tuple[int, int]:
    """The least and the greatest number of nodes."""
    return (count, count) if isinstance(count, int) else (count[0], count[1])


# -- checks of settings: each gets a value, and where it stands for the message -------------------


def _is_count(value: object, least: int) -> bool:
    return type(value) is int and least <= value <= 10_000


def _check_span(value: Any, given: str) -> None:
    if not isinstance(value, (tuple, list)):
        require(_is_count(value, 1), f"{given}: must be a whole number from 1 to 10,000")
        return
    are_counts = len(value) == 2 and _is_count(value[0], 0) and _is_count(value[1], 1)
    require(
        are_counts and value[0] <= value[1],
        f"{given}: (least, most) must be two whole numbers, the first not above the second",
    )


def _check_text(value: Any, given: str) -> None:
    is_plain = isinstance(value, str) and bool(value) and value.isprintable()
    require(is_plain, f"{given}: must be a line of text")


def _check_command(value: Any, given: str) -> None:
    words = [value] if isinstance(value, str) else value
    is_command = isinstance(words, Sequence) and len(words) > 0
    require(
        is_command and all(isinstance(one, str) and one and one.isprintable() for one in words),
        f"{given}: pass a command as a text, or as a list of its words",
    )


def _check_seconds(value: Any, given: str, least: float = 0.0) -> None:
    require(
        is_number(value) and least <= value < math.inf,
        f"{given}: must be a number of seconds from {least:g} on",
    )


def _check_word(value: Any, given: str) -> None:
    is_word = isinstance(value, str) and bool(_WORD.fullmatch(value))
    require(is_word, f"{given}: is not a name that Slurm could know")


def _check_time(value: Any, given: str) -> None:
    is_time = isinstance(value, str) and bool(_TIME.fullmatch(value))
    require(is_time, f'{given}: write it as Slurm does, for example "08:00:00"')


def _check_options(value: Any, given: str) -> None:
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    require(
        is_list and all(isinstance(one, str) and one.startswith("-") for one in value),
        f'{given}: pass a list of arguments of sbatch, such as ["--qos=long"]',
    )


def _check_hosts(value: Any, given: str) -> None:
    is_list = isinstance(value, Sequence) and not isinstance(value, str) and len(value) > 0
    require(is_list, f'{given}: pass a list of host names, such as ["a", "b"]')
    for host in value:
        is_host = isinstance(host, str) and bool(_HOST.fullmatch(host))
        require(is_host, f"{given}: {host!r:.100} is not a host name that ssh knows")
    require(len(set(value)) == len(value), f"{given}: a host is listed twice")


# By the name of the setting, in all classes. None is a value of each.
CHECKS: Mapping[str, Callable[[Any, str], None]] = {
    "address": _check_text,
    "agents": _check_span,
    "controller_address": _check_text,
    "folder": _check_text,
    "hosts": _check_hosts,
    "idle_s": _check_seconds,
    "account": _check_word,
    "memory_per_node": _check_word,
    "nodes": _check_span,
    "options": _check_options,
    "partition": _check_word,
    "python": _check_command,
    "scratch": _check_text,
    "ssh": _check_command,
    "start_s": partial(_check_seconds, least=1.0),
    "time": _check_time,
}


def words_of(command: Command | None, default: Sequence[str]) -> tuple[str, ...]:
    """A command as a list of words: a text is one word, the program itself."""
    if command is None:
        return tuple(default)
    return (command,) if isinstance(command, str) else tuple(command)


AUTO = "auto"
_CUSTOM = "resources_per_node."
_NOT_IN_A_QUERY = ("hosts", "scheduler", "resources_per_node")
_CLASSES: Mapping[str, type[Any]] = {
    "local": Local,
    "ssh": SSH,
    "slurm": Slurm,
    "dask": Dask,
    "ray": Ray,
}


def cluster_of_uri(uri: str, environ: Mapping[str, str], *, where: str) -> Cluster:
    """The cluster that a URI describes; `where` names its source in messages. Raises
    InvalidConfig."""
    if uri == AUTO:
        return _allocation(environ, where)
    try:
        parts = urlsplit(uri)
    except ValueError as error:
        raise InvalidConfig(f"{where}: {uri!r:.200} is not a URI: {error}") from error
    made = _CLASSES.get(parts.scheme)
    known = ", ".join(f"{scheme}://" for scheme in _CLASSES)
    require(
        made is not None and not parts.fragment and parts.path in ("", "/"),
        f'{where}: {uri!r:.200} names no cluster: it begins with {known}, or is "auto"',
    )
    assert made is not None
    given: dict[str, Any] = _first(parts.scheme, unquote(parts.netloc), where)
    custom: dict[str, float] = {}
    for name, text in parse_qsl(parts.query, keep_blank_values=True):
        if name.startswith(_CUSTOM):
            custom[name.removeprefix(_CUSTOM)] = _number(text, name, where)
        else:
            given[name] = _setting(made, name, text, where)
    if custom:
        given["resources_per_node"] = custom
    if made is Dask and given.get("insecure"):
        given["scheduler"] = given["scheduler"].replace("tls://", "tcp://", 1)
    try:
        cluster: Cluster = made(**given)
    except InvalidConfig as error:
        raise InvalidConfig(f"{where}: {error}") from error
    return cluster


def _allocation(environ: Mapping[str, str], where: str) -> Cluster:
    require(
        "SLURM_JOB_ID" in environ,
        f'{where}: "auto" uses the nodes of a Slurm allocation, and this script runs in none '
        f"(SLURM_JOB_ID is not set). Run it with sbatch or salloc, or name a cluster",
    )
    return Slurm()


def _first(scheme: str, host: str, where: str) -> dict[str, Any]:
    """The settings that stand in the place of a host."""
    match scheme:
        case "ssh":
            require(bool(host), f"{where}: name the hosts: ssh://node1,node2")
            return {"hosts": host.split(",")}
        case "slurm":
            return {"partition": host} if host else {}
        case "dask":
            require(bool(host), f"{where}: name the scheduler: dask://host:8786")
            return {"scheduler": f"tls://{host}"}
        case "ray":
            return {"address": f"ray://{host}" if host else "auto"}
        case _:
            require(not host, f"{where}: local:// takes no host, but has {host!r:.100}")
            return {}


def _setting(made: type[Any], name: str, text: str, where: str) -> Any:
    fields = [field.name for field in dataclasses.fields(made)]
    known = [field for field in fields if field not in _NOT_IN_A_QUERY]
    near = near_text([name], dict.fromkeys(known))
    require(
        name in known,
        f"{where}: {name!r:.100} is not a setting of {made.__name__}.{near} "
        f"It has: {', '.join(known)}",
    )
    return _READERS.get(name, _text)(text, name, where)


def _number(text: str, name: str, where: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise InvalidConfig(f"{where}: {name}={text!r:.100} must be a number") from error


def _whole(text: str, name: str, where: str) -> int:
    require(
        text.isascii() and text.isdigit(), f"{where}: {name}={text!r:.100} must be a whole number"
    )
    return int(text)


def _span(text: str, name: str, where: str) -> int | tuple[int, int]:
    """`4`, or `1-4` for (least, most)."""
    least, dash, most = text.partition("-")
    if not dash:
        return _whole(text, name, where)
    return _whole(least, name, where), _whole(most, name, where)


def _words(text: str, name: str, where: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise InvalidConfig(f"{where}: {name}={text!r:.100}: {error}") from error


def _yes_or_no(text: str, name: str, where: str) -> bool:
    require(text in ("0", "1"), f"{where}: {name}={text!r:.100} must be 0 or 1")
    return text == "1"


def _text(text: str, name: str, where: str) -> str:
    return text


_READERS: Mapping[str, Callable[[str, str, str], Any]] = {
    "agents": _span,
    "cpus_per_node": _number,
    "gpus_per_node": _whole,
    "idle_s": _number,
    "start_s": _number,
    "nodes": _span,
    "insecure": _yes_or_no,
    "options": _words,
    "python": _words,
    "ssh": _words,
}
