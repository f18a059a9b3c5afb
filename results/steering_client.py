"""The other end: sends one order to the process that runs an experiment on this machine."""

from __future__ import annotations

import os
import socket
import stat
import time
from pathlib import Path

from holdfast.experiment.folder.layout import CONTROL
from holdfast.experiment.folder.shell import holdfast_command, resume_command
from holdfast.experiment.records.view import Condition, ExperimentView
from holdfast.experiment.steering.orders import LARGEST_FRAME, InvalidOrder, Order, Via, encode
from holdfast.experiment.steering.socket import DEADLINE_S, address_of_entry, name_of, peer_user
from holdfast.names import printable, shown
from holdfast.runtime.errors import WireError
from holdfast.runtime.transport import Channel
from holdfast.runtime.wire import Message
from holdfast.runtime.wire import encode as framed
from holdfast.trial.errors import TuneError


class CannotSteer(TuneError):
    """The order was not performed: the message says why, and what to do."""


class OrderRefused(CannotSteer):
    """The run refused the order; the message is its answer."""


def send_order(
    experiment: ExperimentView, order: Order, *, via: Via, deadline_s: float = DEADLINE_S
) -> str:
    """Let the run perform an order, which is in its journal afterwards. Returns a sentence.

    Raises CannotSteer, InvalidOrder, OSError.
    """
    data = _frame(order, via)
    if reason := why_not(experiment):
        raise CannotSteer(reason)
    assert experiment.layout is not None
    try:
        with _connected(experiment, experiment.layout.root, deadline_s) as sock:
            sock.sendall(data)
            answer = _answer(sock, deadline_s)
    except (TimeoutError, BlockingIOError) as error:
        raise CannotSteer(_silent(experiment, deadline_s)) from error
    except (ConnectionError, WireError) as error:
        raise CannotSteer(
            f"{_runner(experiment)}, but ended the connection before it answered. Whether it has "
            f"performed the order: {_look_at(experiment)}"
        ) from error
    kind, text = answer
    if kind != "ok":
        raise OrderRefused(text)
    return text


def why_not(experiment: ExperimentView) -> str:
    """The reason why nobody can steer it from here, by its files; "" if it seems possible."""
    layout, path = experiment.layout, experiment.shown
    if not experiment.holder or layout is None:
        if experiment.condition(time.time()) is Condition.LIVE:
            return f"another machine runs {path}: steer it there"
        return f"no process runs {path}. To resume it: {resume_command(path)}"
    try:
        found = os.lstat(layout.control)
    except FileNotFoundError:
        return (
            f"{_runner(experiment)}, but takes no orders: there is no {CONTROL}. It is just "
            f"starting or ending; otherwise its output says why, or an older holdfast runs it"
        )
    if not stat.S_ISSOCK(found.st_mode):
        where = printable(str(layout.control))
        return f"{_runner(experiment)}, but takes no orders: {where} is not its socket"
    return "" if _is_allowed(found.st_uid) else _forbidden(experiment, found.st_uid)


def _is_allowed(owner: int) -> bool:
    return os.geteuid() == 0 or owner in (os.geteuid(), 0)


def _frame(order: Order, via: Via) -> bytes:
    """Raises InvalidOrder for what does not fit into a frame."""
    try:
        data = framed(["order", via, encode(order)])
    except (UnicodeEncodeError, OverflowError, TypeError) as error:
        raise InvalidOrder(f"the order has a value that cannot be sent: {error}") from error
    if len(data) > LARGEST_FRAME:
        raise InvalidOrder(f"the order has {len(data):,} bytes, and at most {LARGEST_FRAME:,} fit")
    return data


def _connected(experiment: ExperimentView, root: Path, deadline_s: float) -> socket.socket:
    """A connection to the process that made the socket. Raises CannotSteer, OSError."""
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.settimeout(deadline_s)
        with address_of_entry(folder, str(root)) as address:
            sock.connect(address)
        # The name may be another file than the one that was looked at: the kernel knows who
        # listens.
        if not _is_allowed(user := peer_user(sock)):
            raise CannotSteer(_forbidden(experiment, user))
    except BaseException as error:
        sock.close()
        if isinstance(error, PermissionError):
            raise CannotSteer(_forbidden(experiment, os.lstat(root).st_uid)) from error
        if isinstance(error, (FileNotFoundError, ConnectionRefusedError)):
            raise CannotSteer(
                f"{_runner(experiment)}, but does not listen on {CONTROL}: it has just ended, or "
                f"it is on another machine that shares this folder. Steer it there"
            ) from error
        raise
    finally:
        os.close(folder)
    return sock


def _answer(sock: socket.socket, deadline_s: float) -> tuple[str, str]:
    """The run's answer. Raises TimeoutError, ConnectionError, WireError."""
    channel = Channel(os.dup(sock.fileno()), largest=LARGEST_FRAME)
    try:
        message: Message | None = channel.receive(deadline_s)
    finally:
        channel.close()
    match message:
        case None:
            raise ConnectionResetError
        case [("ok" | "error") as kind, str(text)]:
            return kind, text
        case _:
            raise WireError(f"not an answer to an order: {shown(message)}")


def _runner(experiment: ExperimentView) -> str:
    return f"{experiment.holder} runs {experiment.shown}"


def _look_at(experiment: ExperimentView) -> str:
    return holdfast_command("show", experiment.shown)


def _silent(experiment: ExperimentView, deadline_s: float) -> str:
    return (
        f"{_runner(experiment)}, but did not answer within {deadline_s:g} s: it is suspended "
        f"(Ctrl-Z, SIGSTOP) or very busy. Whether it has performed the order: "
        f"{_look_at(experiment)}"
    )


def _forbidden(experiment: ExperimentView, owner: int) -> str:
    name = name_of(owner)
    return (
        f"{_runner(experiment)} and belongs to the user {name}: only {name} and root can steer it"
    )
