"""Agents on hosts that the system's `ssh` reaches without a password.

An agent talks over the stdin and stdout of its ssh, so no port is opened, and what ~/.ssh/config
says holds: aliases, jumps, keys, Kerberos. A host that is lost is tried again.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence

from holdfast.dataclass import dataclass
from holdfast.runtime.engines import started
from holdfast.runtime.engines.agent_process import Job
from holdfast.runtime.engines.command_engine import CommandEngine
from holdfast.runtime.engines.engine import EngineFailed, EngineHost, NodeKind
from holdfast.runtime.engines.supplied import Times
from holdfast.runtime.engines.supply import Place

KIND = "ssh"
# A user, and a name or an address that cannot be taken for an option or for shell code.
_HOST = re.compile(
    r"(?:(?P<user>[A-Za-z0-9_][A-Za-z0-9_.+-]*)@)?"
    r"(?:(?P<name>[A-Za-z0-9_][A-Za-z0-9_.-]*)|\[(?P<address>[0-9A-Fa-f:.]+(?:%\w+)?)\])"
    r"(?::(?P<port>[0-9]{1,5}))?"
)
# ssh gives a host this part of the time to answer, and then says itself what it tried.
_CONNECT_PART = 0.25
_ALIVE_S = 5
_OPTIONS = (
    "BatchMode=yes",
    f"ServerAliveInterval={_ALIVE_S}",
    "ServerAliveCountMax=2",
    # The user's own forwardings would collide, and a shared connection would outlive its agent.
    "ClearAllForwardings=yes",
    "ForwardAgent=no",
    "ForwardX11=no",
    "ControlMaster=no",
    "PermitLocalCommand=no",
    "RequestTTY=no",
    "EscapeChar=none",
)


# Those without which the user's own attempt may succeed: the others are not shown.
_SHOWN = ("-o", _OPTIONS[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A host as the user wrote it, and the arguments of ssh for it."""

    given: str
    arguments: tuple[str, ...]


def parsed(given: str) -> Host:
    """Check `name`, `user@name`, `name:port`, `user@[IPv6]:port`; a name may be an alias. Raises
    ValueError."""
    found = _HOST.fullmatch(given)
    port = int(found["port"]) if found and found["port"] else 0
    if not found or port > 65535 or (found["port"] and not port):
        raise ValueError(
            f"{given!r:.200} is no host for ssh: write node7, me@node7, node7:2222 or an alias of "
            f"~/.ssh/config"
        )
    user = ("-l", found["user"]) if found["user"] else ()
    target = found["name"] or found["address"]
    return Host(given=given, arguments=(*user, *(("-p", str(port)) if port else ()), "--", target))


def remote_command(words: Sequence[str], variables: Mapping[str, str]) -> str:
    """The words as one line for the user's login shell there. A `~/` at the beginning of a word is
    left to that shell."""
    quoted = [
        f"~/{shlex.quote(word[2:])}" if word.startswith("~/") else shlex.quote(word)
        for word in words
    ]
    given = [shlex.quote(f"{name}={value}") for name, value in variables.items()]
    return " ".join(["exec", *(["env", *given] if given else []), *quoted])


class SSHEngine(CommandEngine):
    """One agent on each of `hosts`.

    `resources` are those of each host, or, as a dict by host, of the host; hosts with equal ones
    are one kind of node. None: the agent finds out. Raises ValueError.
    """

    over_pipe = is_elsewhere = True

    def __init__(
        self,
        hosts: Sequence[str],
        *,
        resources: Mapping[str, float] | None = None,
        resources_by_host: Mapping[str, Mapping[str, float]] | None = None,
        python: Sequence[str] = ("python3",),
        ssh: Sequence[str] = ("ssh",),
        variables: Mapping[str, str] | None = None,
        environ: Mapping[str, str] | None = None,
        module: str = "holdfast.agent",
        times: Times | None = None,
    ) -> None:
        """`python` is the command of the interpreter on the hosts, and `ssh` that of ssh here,
        with options that precede holdfast's. `variables` are set for agents; everybody there can
        read them."""
        self._hosts = {host: parsed(host) for host in hosts}
        if len(self._hosts) != len(hosts):
            raise ValueError(f"a host is listed twice in {', '.join(hosts)}: one agent is enough")
        if not hosts or not python or not ssh:
            raise ValueError("SSH needs a host, a command for Python and one for ssh")
        if unknown := sorted(set(resources_by_host or {}) - set(hosts)):
            raise ValueError(f"there are resources for {', '.join(unknown)}, but no such host")
        times = times or Times()
        self._ssh = tuple(ssh)
        options = (*_OPTIONS, f"ConnectTimeout={max(1, int(times.answer_s * _CONNECT_PART))}")
        self._options = tuple(word for option in options for word in ("-o", option))
        words = [*python, "-m", started.MODULE, module, "-"]
        self._command = remote_command(words, variables or {})
        self._environ = dict(os.environ if environ is None else environ)
        kinds, places = _kinds(
            {host: (resources_by_host or {}).get(host, resources) for host in hosts}
        )
        super().__init__(kinds, places, times)

    async def open(self, host: EngineHost) -> None:
        program = self._ssh[0]
        if shutil.which(program, path=self._environ.get("PATH")) is None:
            raise EngineFailed(
                f"`{shlex.join(self._ssh)}` is not here, so {', '.join(self._hosts)} cannot be "
                f"reached: install ssh, or name its command"
            )
        await super().open(host)

    def job_at(self, place: str) -> Job:
        there = *self._hosts[place].arguments, self._command
        return Job(
            where=place,
            command=(*self._ssh, *self._options, *there),
            environ=self._environ,
            over_pipe=True,
            answer_s=self.times.answer_s,
            dies_with_parent=True,
            short=[*self._ssh, *_SHOWN, *there],
        )


def _kinds(
    resources: Mapping[str, Mapping[str, float] | None],
) -> tuple[list[NodeKind], list[Place]]:
    """A kind for each group of hosts with equal resources, and a place for each host."""
    groups: dict[object, list[str]] = {}
    for host, amounts in resources.items():
        key = None if amounts is None else frozenset(amounts.items())
        groups.setdefault(key, []).append(host)
    kinds: list[NodeKind] = []
    places: list[Place] = []
    for number, hosts in enumerate(groups.values(), 1):
        name = KIND if number == 1 else f"{KIND}-{number}"
        kinds.append(NodeKind(name=name, resources=resources[hosts[0]], most=len(hosts)))
        places += [Place(name=host, kind=name) for host in hosts]
    return kinds, places
