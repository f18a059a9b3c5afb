"""Checks the answers of nodes' keepers before anything relies on them.

A node runs the user's code, which can write anything to the agent's connection. So each answer is
checked by type, range and name when it arrives; only then `NodeKeepers` and `Uploads` see it.
"""

from __future__ import annotations

import math
import re

from holdfast.names import folder_name, inner_path, plain_name, printable, shown
from holdfast.runtime import safe_text
from holdfast.runtime.wire import Message
from holdfast.syncer.files.tree import MANIFEST_NAME

_MOST_BYTES = 1 << 63
_MOST_SECONDS = 1e12
_LONGEST_TICKET = 1 << 12
_LONGEST_TEXT = 1 << 12
_MOST_LINES = 100_000
_CHECKSUM = re.compile(r"[0-9a-f]{64}")


def checked(message: Message) -> Message:
    """The same answer, with text that can be printed. Raises ValueError if it is not one of a
    node's keeper."""
    match message:
        case ["moving" | "replaced"]:
            return message
        case ["committed", trial, index]:
            return ["committed", _trial(trial), _number(index)]
        case ["uncommitted" | "lost" as name, trial, index, why]:
            return [name, _trial(trial), _number(index), _text(why)]
        case ["shared", trial, index, dict(files), list(folders)]:
            facts = {_file(name): _fact(fact) for name, fact in files.items()}
            return ["shared", _trial(trial), _number(index), facts, [*map(inner_path, folders)]]
        case ["discarded", trial, list(folders)]:
            return ["discarded", _trial(trial), [_checkpoint(folder) for folder in folders]]
        case ["sent_ended", folder]:
            return ["sent_ended", folder_name(folder)]
        case ["fetched" | "unanswered" as name, ticket, why]:
            return [name, _ticket(ticket), _text(why)]
        case ["found", ticket, list(rows)]:
            return ["found", _ticket(ticket), [_found(row) for row in rows]]
        case ["copied", ticket, files, size]:
            return ["copied", _ticket(ticket), _number(files), _number(size)]
        case ["seen", key, content]:
            return ["seen", inner_path(key, "the token"), _ticket(content)]
        case ["blind" | "gone" | "refused" | "trouble" | "warning" as name, why]:
            return [name, _text(why)]
        case ["kept", str(place)] if place.startswith("/"):
            return ["kept", printable(safe_text.shortened(place, _LONGEST_TEXT))]
        case ["failed" | "stuck" as name, what, why]:
            return [name, _text(what), _text(why)]
        case ["left" | "closed" as name, list(lines)] if len(lines) <= _MOST_LINES:
            return [name, [_text(line) for line in lines]]
        case ["progress", *numbers] if len(numbers) == 4:
            return ["progress", *(_number(value) for value in numbers)]
        case _:
            raise ValueError(f"not an answer of a node's keeper: {shown(message)}")


def _found(row: object) -> Message:
    match row:
        case [name, iteration, float() | int() as seconds, files, size]:
            if not math.isfinite(seconds) or not 0 <= seconds <= _MOST_SECONDS:
                raise ValueError(f"the training time is {shown(seconds)}")
            numbers = (_number(iteration), float(seconds), _number(files), _number(size))
            return [plain_name(name, "the checkpoint"), *numbers]
        case _:
            raise ValueError(f"not a checkpoint: {shown(row)}")


def _file(name: object) -> str:
    """A file's name in a checkpoint. Raises ValueError."""
    path = inner_path(name, "the file")
    if path == MANIFEST_NAME:
        raise ValueError(f"{path} is holdfast's own file")
    return path


def _fact(value: object) -> list[object]:
    match value:
        case [size, str(checksum)] if _CHECKSUM.fullmatch(checksum):
            return [_number(size), checksum]
        case _:
            raise ValueError(f"not a file's size and checksum: {shown(value)}")


def _trial(value: object) -> str:
    return plain_name(value, "the trial")


def _checkpoint(value: object) -> str:
    """A checkpoint's folder in a trial's. Raises ValueError."""
    path = inner_path(value, "the checkpoint")
    above, _, name = path.partition("/")
    return f"{folder_name(above)}/{plain_name(name)}"


def _number(value: object) -> int:
    if type(value) is not int or not 0 <= value < _MOST_BYTES:
        raise ValueError(f"a number from 0 on was expected, not {shown(value)}")
    return value


def _ticket(value: object) -> str:
    if type(value) is not str or len(value) > _LONGEST_TICKET:
        raise ValueError(f"a ticket must be short text, not {shown(value)}")
    return value


def _text(value: object) -> str:
    if type(value) is not str:
        raise ValueError(f"a reason must be text, not {shown(value)}")
    return printable(safe_text.shortened(value, _LONGEST_TEXT), keep="\n")
