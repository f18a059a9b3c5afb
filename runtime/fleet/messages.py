"""The messages of an agent as types, whose annotations are checked once, here.

An agent is admitted by its ticket, but its node may be broken, or taken over. So `read` raises
WireError, naming the field, for a message that no agent sends. The caller then ends its
connection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Annotated, Any, Literal

from holdfast.dataclass import dataclass
from holdfast.names import plain_name, printable, shown
from holdfast.runtime.errors import WireError
from holdfast.runtime.launcher import ExitCause
from holdfast.runtime.usage.used import Bytes, Used
from holdfast.runtime.wire import Message
from holdfast.schema import Between, Checked, Count, Messages, Stored, decode, to_fields
from holdfast.text.errors import shortened

_LONGEST_LINE = 1000
_LONGEST_TEXT = 1 << 18
_MOST_GPUS = 1024
_MOST_RESOURCES = 200
_LARGEST = float(1 << 60)
# No machine has more. A node with any number of CPUs would get any number of trials.
_MOST_OF = {"CPU": 1 << 16, "GPU": _MOST_GPUS}


def _line(value: Any, name: str) -> str:
    if type(value) is not str or len(value) > _LONGEST_LINE or not value.isprintable():
        raise ValueError(f"{name} must be one line of text, not {shown(value)}")
    return value


def _text(value: Any, name: str) -> str:
    if type(value) is not str:
        raise ValueError(f"{name} must be text, not {shown(value)}")
    return printable(shortened(value, _LONGEST_TEXT), keep="\n\t")


def _message(value: Any, name: str) -> Message:
    if type(value) is not list or not value or type(value[0]) is not str:
        raise ValueError(f"{name} must be a list that begins with a name, not {shown(value)}")
    return value


def _resources(value: Any) -> dict[str, float]:
    if type(value) is not dict or len(value) > _MOST_RESOURCES:
        raise ValueError(f"a table was expected, not {shown(value)}")
    found: dict[str, float] = {}
    for name, amount in value.items():
        most = _MOST_OF.get(plain_name(name, "resource"), _LARGEST)
        is_number = type(amount) in (int, float) and 0 <= amount <= most
        if not is_number or (name == "GPU" and amount % 1):
            raise ValueError(f"the amount of {name} must be possible, not {shown(amount)}")
        found[name] = float(amount)
    return found


def _gpus(value: Any) -> tuple[str, ...]:
    if type(value) is not list or len(value) > _MOST_GPUS:
        raise ValueError(f"a list of names was expected, not {shown(value)}")
    return tuple(plain_name(name, "gpu") for name in value)


def _ending(value: Any) -> ExitCause:
    ending: ExitCause = decode(ExitCause, value)
    return ending


Line = Annotated[str, Checked(_line)]
Text = Annotated[str, Checked(_text)]
Inner = Annotated[Message, Checked(_message)]
Amounts = Annotated[Mapping[str, float], Stored(_resources)]
Names = Annotated[Sequence[str], Stored(_gpus)]
Seconds = Annotated[float, Between(0, _LARGEST)]
Pid = Annotated[int, Between(2, (1 << 31) - 1)]
Ending = Annotated[ExitCause, Stored(_ending, to_fields)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """An agent introduces itself. `resources` has "CPU", "GPU", "memory" in bytes and others;
    `address` is its own name for its end of the connection."""

    protocol: Count
    version: Line
    python: Line
    ticket: Line
    token: bytes
    hostname: Line
    address: Line
    pid: Pid
    resources: Amounts
    gpus: Names
    disk_free_bytes: Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The node can run workers. `notice` is for the user."""

    name: Literal["loaded"] = "loaded"
    notice: Text


@dataclass(frozen=True, slots=True, kw_only=True)
class Unloadable:
    """The node cannot load what workers share. Without a `traceback`, the user's code is not the
    reason."""

    name: Literal["unloadable"] = "unloadable"
    type_name: Line
    message: Text
    traceback: Text = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """The agent is alive. The controller answers."""

    name: Literal["heartbeat"] = "heartbeat"
    disk_free_bytes: Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class FromWorker:
    """A message of a worker."""

    name: Literal["from"] = "from"
    worker: Line
    message: Inner


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPid:
    """The pid of a worker, as the node's kernel says it."""

    name: Literal["pid"] = "pid"
    worker: Line
    pid: Pid


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerUsed:
    """What a worker has used so far."""

    name: Literal["used"] = "used"
    worker: Line
    used: Used


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerExit:
    """A worker has ended."""

    name: Literal["exit"] = "exit"
    worker: Line
    ending: Ending


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer of the node's service."""

    name: Literal["answer"] = "answer"
    message: Inner


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaving:
    """The node will be taken away in so many seconds."""

    name: Literal["leaving"] = "leaving"
    seconds: Seconds
    why: Line


@dataclass(frozen=True, slots=True, kw_only=True)
class Warned:
    """A warning for the user."""

    name: Literal["warned"] = "warned"
    text: Text


FromAgent = (
    Loaded
    | Unloadable
    | Heartbeat
    | FromWorker
    | WorkerPid
    | WorkerUsed
    | WorkerExit
    | Answer
    | Leaving
    | Warned
)
_KINDS = Messages(
    {
        "loaded": Loaded,
        "unloadable": Unloadable,
        "heartbeat": Heartbeat,
        "from": FromWorker,
        "pid": WorkerPid,
        "used": WorkerUsed,
        "exit": WorkerExit,
        "answer": Answer,
        "leaving": Leaving,
        "warned": Warned,
    }
)
_OF_HELLO = frozenset(field.name for field in fields(Hello))


def read_hello(message: Message) -> Hello:
    """Raises WireError. An agent of another version may say more."""
    if len(message) != 2 or message[0] != "hello" or type(message[1]) is not dict:
        raise WireError(f"not a hello: {shown(message[0])}")
    try:
        hello: Hello = decode(Hello, {n: v for n, v in message[1].items() if n in _OF_HELLO})
    except ValueError as error:
        raise WireError(str(error)) from error
    return hello


def read(message: Message) -> FromAgent:
    """Raises WireError."""
    try:
        found: FromAgent = _KINDS.read(message)
    except ValueError as error:
        raise WireError(str(error)) from error
    return found
