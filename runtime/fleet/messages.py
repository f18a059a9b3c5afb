"""The messages of an agent as types, checked once, here.

An agent is admitted by its ticket, but its node may be broken, or taken over. So `read` raises
WireError, naming the field, for a message that no agent sends. The caller then ends its
connection.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.names import UnsafeName, plain_name, printable, shown
from holdfast.runtime.errors import WireError
from holdfast.runtime.launcher import ExitCause
from holdfast.runtime.usage.used import Used, read_used
from holdfast.runtime.wire import Message
from holdfast.text.errors import shortened

_LONGEST_LINE = 1000
_LONGEST_TEXT = 1 << 18
_MOST_GPUS = 1024
_MOST_RESOURCES = 200
_LARGEST = float(1 << 60)
# No machine has more. A node with any number of CPUs would get any number of trials.
_MOST_OF = {"CPU": 1 << 16, "GPU": _MOST_GPUS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """An agent introduces itself. `resources` has "CPU", "GPU", "memory" in bytes and others;
    `address` is its own name for its end of the connection."""

    protocol: int
    version: str
    python: str
    ticket: str
    token: bytes
    hostname: str
    address: str
    pid: int
    boot: str
    resources: Mapping[str, float]
    gpus: Sequence[str]
    disk_free_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    notice: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unloadable:
    type_name: str
    message: str
    traceback: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    disk_free_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FromWorker:
    worker: str
    message: Message


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPid:
    worker: str
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerUsed:
    worker: str
    used: Used


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerExit:
    worker: str
    ending: ExitCause


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    message: Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaving:
    seconds: float
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A warning for the user."""

    text: str


Claim = (
    Loaded
    | Unloadable
    | Beat
    | FromWorker
    | WorkerPid
    | WorkerUsed
    | WorkerExit
    | Kept
    | Leaving
    | Told
)


def read_hello(message: Message) -> Hello:
    """Raises WireError."""
    if len(message) != 2 or message[0] != "hello" or type(message[1]) is not dict:
        raise WireError(f"not a hello: {shown(message[0])}")
    table = message[1]
    return Hello(
        protocol=_count(table, "protocol"),
        version=_line(table.get("version"), "version"),
        python=_line(table.get("python"), "python"),
        ticket=_line(table.get("ticket"), "ticket"),
        token=_bytes(table.get("token"), "token"),
        hostname=_line(table.get("hostname"), "hostname"),
        address=_line(table.get("address"), "address"),
        pid=_count(table, "pid"),
        boot=_line(table.get("boot"), "boot"),
        resources=_resources(table.get("resources")),
        gpus=_gpus(table.get("gpus")),
        disk_free_bytes=_count(table, "disk_free_bytes"),
    )


def read(message: Message) -> Claim:
    """Raises WireError."""
    reader = _READERS.get(message[0])
    if reader is None or len(message) - 1 != reader[0]:
        raise WireError(f"not a message of an agent: {shown(message[0])}, {len(message)} parts")
    claim: Claim = reader[1](*message[1:])
    return claim


def _loaded(notice: Any) -> Loaded:
    return Loaded(notice=_text(notice, "notice"))


def _unloadable(type_name: Any, message: Any, traceback: Any) -> Unloadable:
    return Unloadable(
        type_name=_line(type_name, "type"),
        message=_text(message, "message"),
        traceback=_text(traceback, "traceback"),
    )


def _beat(disk_free: Any) -> Beat:
    return Beat(disk_free_bytes=_whole(disk_free, "disk_free_bytes"))


def _from(worker: Any, message: Any) -> FromWorker:
    return FromWorker(worker=_worker(worker), message=_message(message))


def _pid(worker: Any, pid: Any) -> WorkerPid:
    if type(pid) is not int or not 1 < pid < 1 << 31:
        raise WireError(f"pid must be a process id, not {shown(pid)}")
    return WorkerPid(worker=_worker(worker), pid=pid)


def _used(worker: Any, plain: Any) -> WorkerUsed:
    return WorkerUsed(worker=_worker(worker), used=read_used(plain))


def _exit(worker: Any, table: Any) -> WorkerExit:
    match table:
        case {"cause": str(cause), "signum": int(signum), "is_out_of_memory": bool(memory)} if (
            0 <= signum < 256
        ):
            cause = printable(shortened(cause, _LONGEST_LINE * 4))
            plain = table.get("used")
            used = None if plain is None else read_used(plain)
            ending = ExitCause(cause=cause, signum=signum, is_out_of_memory=memory, used=used)
            return WorkerExit(worker=_worker(worker), ending=ending)
        case _:
            raise WireError(f"not the cause of an exit: {shown(table)}")


def _kept(message: Any) -> Kept:
    return Kept(message=_message(message))


def _leaving(seconds: Any, why: Any) -> Leaving:
    return Leaving(seconds=_amount(seconds, "seconds"), why=_line(why, "why"))


def _told(text: Any) -> Told:
    return Told(text=_text(text, "text"))


_READERS: Mapping[str, tuple[int, Callable[..., Claim]]] = {
    "loaded": (1, _loaded),
    "unloadable": (3, _unloadable),
    "beat": (1, _beat),
    "from": (2, _from),
    "pid": (2, _pid),
    "used": (2, _used),
    "exit": (2, _exit),
    "kept": (1, _kept),
    "leaving": (2, _leaving),
    "told": (1, _told),
}


def _worker(value: Any) -> str:
    if type(value) is not str or len(value) > _LONGEST_LINE:
        raise WireError(f"worker must be a name, not {shown(value)}")
    return value


def _message(value: Any) -> Message:
    if type(value) is not list or not value or type(value[0]) is not str:
        raise WireError(f"message must be a list that begins with a name, not {shown(value)}")
    return value


def _line(value: Any, name: str) -> str:
    if type(value) is not str or len(value) > _LONGEST_LINE or not value.isprintable():
        raise WireError(f"{name} must be one line of text, not {shown(value)}")
    return value


def _text(value: Any, name: str) -> str:
    if type(value) is not str:
        raise WireError(f"{name} must be text, not {shown(value)}")
    return printable(shortened(value, _LONGEST_TEXT), keep="\n\t")


def _bytes(value: Any, name: str) -> bytes:
    if type(value) is not bytes:
        raise WireError(f"{name} must be bytes, not {type(value).__name__}")
    return value


def _count(table: Mapping[str, Any], name: str) -> int:
    return _whole(table.get(name), name)


def _whole(value: Any, name: str) -> int:
    if type(value) is not int or not 0 <= value <= _LARGEST:
        raise WireError(f"{name} must be a whole number from 0 on, not {shown(value)}")
    return value


def _amount(value: Any, name: str) -> float:
    if type(value) not in (int, float) or not 0 <= value <= _LARGEST or math.isnan(value):
        raise WireError(f"{name} must be a number from 0 on, not {shown(value)}")
    return float(value)


def _resources(value: Any) -> dict[str, float]:
    if type(value) is not dict or len(value) > _MOST_RESOURCES:
        raise WireError(f"resources must be a table, not {shown(value)}")
    found = {_name(name, "resource"): _amount(part, "amount") for name, part in value.items()}
    for name, most in _MOST_OF.items():
        if (amount := found.get(name, 0.0)) > most or (name == "GPU" and amount % 1):
            raise WireError(f"the amount of {name} must be possible, not {shown(amount)}")
    return found


def _gpus(value: Any) -> tuple[str, ...]:
    if type(value) is not list or len(value) > _MOST_GPUS:
        raise WireError(f"gpus must be a list of names, not {shown(value)}")
    return tuple(_name(name, "gpu") for name in value)


def _name(value: Any, what: str) -> str:
    try:
        return plain_name(value, what)
    except UnsafeName as error:
        raise WireError(str(error)) from error
