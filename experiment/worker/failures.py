"""Errors of user code as text for the controller.

Advice is added where the cause is how trials run, or a habit from another library.
"""

from __future__ import annotations

import errno
import os
import re
import socket
from collections.abc import Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any

from holdfast.experiment.worker.metrics import sendable
from holdfast.experiment.worker.session import Session
from holdfast.runtime.fleet.facts import NODE_DIR
from holdfast.text.errors import message_of, traceback_of, type_name
from holdfast.trial.errors import Failure, FailureKind, TuneError
from holdfast.trial.metrics import names_text, near_text

# Quoted text, or a word with a slash or a suffix.
_PATH = re.compile(r"""(?<=['"])[^'"\n]+(?=['"])|[^\s'"]+[/.][^\s'":,]*[^\s'":,.]""")


def advice_for(
    error: BaseException,
    *,
    started_in: str,
    folder: str,
    config: Mapping[str, Any],
    node_dir: str = "",
) -> str:
    """A sentence to add to the error's message; "" if there is nothing to add.

    `started_in` is the directory in which the script was started, `folder` that of the trial; both
    are "" if trials run where the script was started. `node_dir` is the scratch folder of a node.
    """
    match error:
        case OSError(errno=errno.ENOENT | None):
            return _of_file(error, started_in, folder, node_dir)
        case ModuleNotFoundError(name=str(name)) if node_dir:
            return (
                f"A node has the modules that the script had imported when fit() was called: "
                f"import {name.partition('.')[0]} at its top, or install it on the nodes"
            )
        case AttributeError():
            return _of_attribute(error)
        case KeyError():
            return _of_key(error, config)
        case ValueError(args=[str(text), *_]) | RuntimeError(args=[str(text), *_]):
            return _of_group(text)  # not its str(), which may be the user's code
        case _:
            return ""


def _of_group(text: str) -> str:
    """Names the option with which a script made for torchrun runs as a rank."""
    option = "TorchTrainer(loop, torch_config=TorchConfig(init_process_group=False))"
    if "default process group twice" in text:
        return f"The ranks of TorchTrainer have a group: to leave it to the script, {option}"
    if "env:// rendezvous" in text:
        return f"What torchrun sets, {option} sets for each of its ranks"
    return ""


def path_in(text: str, here: str, folder: str = "") -> str:
    """The absolute path of the file in `here` that a message names by a relative path, or by one
    below `folder`; "" for none. A file to be written counts if its directory is there."""
    found = (_path_in(name, here, folder) for name in _PATH.findall(text))
    return next(filter(None, found), "")


def _of_file(error: OSError, started_in: str, folder: str, node_dir: str) -> str:
    name = error.filename
    if not started_in or not isinstance(name, str | bytes | None):
        return ""
    for here in (started_in, _folder_of(error.__traceback__)):
        # Some libraries name the file in the message alone.
        there = (
            path_in(str(error), here, folder)
            if name is None
            else _path_in(os.fsdecode(name), here, folder)
        )
        if there and node_dir and there.startswith(f"{node_dir}{os.sep}"):
            return (
                f"A trial runs in its own folder: "
                f"os.path.join(tune.get_context().get_original_working_dir(), "
                f"{os.path.relpath(there, here)!r})"
            )
        if there:
            # Short: the screen shows 300 characters of an error, and the path may be long.
            return f"A trial runs in its own folder: pass the absolute path {there}"
    return ""


def _folder_of(frames: TracebackType | None) -> str:
    """The folder of the script whose function is the outermost of these frames."""
    return os.path.dirname(frames.tb_frame.f_code.co_filename) if frames is not None else ""


def _path_in(name: str, here: str, folder: str) -> str:
    if not here:
        return ""
    if os.path.isabs(name):
        # Such as os.path.abspath("data"), called in the trial.
        if not folder or not name.startswith(f"{folder}{os.sep}"):
            return ""
        name = name[len(folder) + 1 :]
    there = os.path.normpath(os.path.join(here, name))
    is_below = os.path.dirname(os.path.normpath(name)) not in ("", os.curdir, os.pardir)
    is_there = os.path.exists(there) or (is_below and os.path.isdir(os.path.dirname(there)))
    return there if name and is_there else ""


def _of_attribute(error: AttributeError) -> str:
    name = error.name
    if not isinstance(error.obj, dict) or name is None:
        return ""
    if name in error.obj:
        return f"The config is a dict: config[{name!r}]"
    if name.startswith("suggest_"):
        return (
            "The function gets a dict, not an Optuna trial: read config['x'], and define it in "
            "Tuner(..., param_space={'x': tune.uniform(0, 1)})"
        )
    return ""


def _of_key(error: KeyError, config: Mapping[str, Any]) -> str:
    """A similar key of the config, if the function that failed has the config in a variable."""
    key = error.args[0] if len(error.args) == 1 else None
    if not isinstance(key, str) or not _reads(error.__traceback__, config):
        return ""
    near = near_text([key], config)
    return f"The config has {names_text(config)}.{near}" if near else ""


def _reads(frames: TracebackType | None, config: Mapping[str, Any]) -> bool:
    """True if the innermost function has the config, or a copy, in a variable."""
    while frames is not None and frames.tb_next is not None:
        frames = frames.tb_next
    values = frames.tb_frame.f_locals.values() if frames is not None else ()
    return any(type(value) is dict and value.keys() == config.keys() for value in values)


class CommandError(TuneError):
    """The command of a trial failed; the message says what it did."""


class CommandNotStarted(CommandError):
    """The operating system could not start the command; the message has its words and why."""


class CommandFailed(CommandError):
    """The command failed, or reported something impossible; the message has its last lines of
    stderr."""


class FolderUnusable(OSError):
    """The trial's folder cannot be written, whatever the trial does."""


_HERE = os.path.join(os.path.dirname(os.path.dirname(__file__)), "")


def describe(error: BaseException, session: Session) -> Failure:
    """The error that ended the user's function in this process, with advice where the cause is
    how trials run."""
    shown = error.__traceback__
    # The first frames are holdfast's: the user needs only their own.
    while shown and shown.tb_next and shown.tb_frame.f_code.co_filename.startswith(_HERE):
        shown = shown.tb_next
    is_setup = isinstance(error, FolderUnusable)
    if is_setup or isinstance(error, CommandError):
        shown = None  # all frames are holdfast's: the message says what the command did
    failure = failure_of(error.with_traceback(shown), "setup" if is_setup else "user")
    started_in = session.job.working_dir if session.job.chdir else ""
    folder = session.folder if session.job.chdir else ""
    advice = advice_for(
        error,
        started_in=started_in,
        folder=folder,
        config=session.assignment.config,
        node_dir=os.environ.get(NODE_DIR, ""),
    )
    return replace(
        failure,
        message=f"{failure.message.rstrip('.')}. {sendable(advice)}"
        if advice
        else failure.message,
        pid=os.getpid(),
        hostname=socket.gethostname(),
    )


def failure_of(error: BaseException, kind: FailureKind) -> Failure:
    """The error as text: its class need not exist, or be picklable, anywhere else."""
    return Failure(
        kind=kind,
        type_name=sendable(type_name(error)),
        message=sendable(message_of(error)),
        traceback=sendable(traceback_of(error, error.__traceback__)),
    )
