"""Rules for every command, whatever the files contain: each returns a sentence, "" if it holds."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.rig.mutation.damage import Damage
from tests.rig.mutation.readings import UNEXPECTED, Reading

# The content of the canary's file: no command may print it.
SECRET = "the-canary-must-not-be-read"
_STATUSES = (0, 1, 2)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
# If the output is not a terminal, `logs` prints a trial's output, and `export` its values, byte by
# byte.
_RAW_OUTPUT = ("logs", "export")
_LONGEST_ERROR = 4_000
# The words by which a reading says that it is incomplete.
_LOUD = re.compile(
    r"damage|unreadable|cannot|could not|lost|missing|aside|broken|not used|incomplete|wrong|gap"
    r"|cut off|cut short|not be read|no valid|refus|invalid|unknown|newer|another version|no head"
    r"|dropped|changed",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One reading of one damaged world.

    `before` and `after` are digests of the canary and of the experiment; `expected` is the same
    reading of the undamaged world. `redone` epochs were trained again. `is_told`: an earlier
    repair has reported the loss.
    """

    damage: Damage
    reading: Reading
    expected: Reading
    canary: tuple[str, str]
    experiment: tuple[str, str]
    may_write: bool
    redone: int = 0
    is_told: bool = False


def problems(case: Case) -> Iterator[str]:
    """Everything that is wrong with it."""
    for name, rule in RULES.items():
        if found := rule(case):
            yield f"{name}: {found}"


def _no_hang(case: Case) -> str:
    return "it did not end in time" if case.reading.status is None else ""


def _no_traceback(case: Case) -> str:
    said, status = case.reading.stderr, case.reading.status
    if "Traceback (most recent call last)" in said or status == UNEXPECTED:
        return said.strip().splitlines()[-1][:300] if said.strip() else f"exit code {status}"
    return ""


def _known_status(case: Case) -> str:
    status = case.reading.status
    return "" if status is None or status in (*_STATUSES, UNEXPECTED) else f"exit code {status}"


def _no_write_outside(case: Case) -> str:
    return "" if case.canary[0] == case.canary[1] else "it changed something outside"


def _no_read_outside(case: Case) -> str:
    both = case.reading.stdout + case.reading.stderr
    return "it printed a file from outside" if SECRET in both else ""


def _only_looks(case: Case) -> str:
    if case.may_write or case.experiment[0] == case.experiment[1]:
        return ""
    return "it changed the experiment"


def _clean_output(case: Case) -> str:
    found = _CONTROL.search(case.reading.stderr)
    if found is None and case.reading.argv[0] not in _RAW_OUTPUT:
        found = _CONTROL.search(case.reading.stdout)
    return "" if found is None else f"it printed the control character {found.group()!r}"


def _short_errors(case: Case) -> str:
    said = case.reading.stderr
    return f"it printed {len(said)} characters of errors" if len(said) > _LONGEST_ERROR else ""


def _no_silent_loss(case: Case) -> str:
    """Only for damaged bytes: a forgery with a valid checksum cannot be noticed."""
    if not case.damage.is_raw or case.reading.status != 0:
        return ""
    if case.is_told or is_loud(case):
        return ""
    if case.redone > 0:
        return f"{case.redone} epochs ran again, and nothing was said"
    found, expected = (_figures(one.stdout) for one in (case.reading, case.expected))
    lost = {key: (n, found.get(key)) for key, n in expected.items() if found.get(key, 0) < n}
    return f"nothing was said of what is missing: {lost}" if lost else ""


def is_loud(case: Case) -> bool:
    """Whether a reading reports a fault that the same reading of the undamaged world does not."""
    said = case.reading.stderr.strip()
    if said and said != case.expected.stderr.strip():
        return True
    new = set(case.reading.stdout.splitlines()) - set(case.expected.stdout.splitlines())
    return any(_LOUD.search(line) for line in new)


def _figures(stdout: str) -> dict[str, int]:
    """The numbers of trials and rows of a reading, and of a tracker's rows, from its JSON."""
    try:
        plain = json.loads(stdout)
    except ValueError:
        return {}
    if isinstance(plain, list):
        return {"rows": len(plain)}
    return {name: count(plain) for name, count in _COUNTS.items() if _has(plain, name)}


def _has(plain: Any, name: str) -> bool:
    return isinstance(plain, dict) and name in plain


def _count(part: Any) -> int:
    return part if isinstance(part, int) else len(part)


_COUNTS: Mapping[str, Callable[[Any], int]] = {
    "rows": lambda plain: _count(plain["rows"]),
    "trials": lambda plain: _count(plain["trials"]),
    "told": lambda plain: _count(plain["told"]),
    "experiments": lambda plain: sum(
        sum((one.get("trials") or {}).values()) for one in plain["experiments"]
    ),
}

RULES: Mapping[str, Callable[[Case], str]] = {
    "no hang": _no_hang,
    "no traceback": _no_traceback,
    "a known exit code": _known_status,
    "no write outside": _no_write_outside,
    "no read outside": _no_read_outside,
    "looking changes nothing": _only_looks,
    "no control characters": _clean_output,
    "short errors": _short_errors,
    "no silent loss": _no_silent_loss,
}


def digest(folder: Path) -> str:
    """Names, kinds and contents of everything below a folder; links are not followed."""
    known = hashlib.sha256()
    for inside, folders, files in sorted(os.walk(folder)):
        for name in sorted((*folders, *files)):
            path = os.path.join(inside, name)
            found = os.lstat(path)
            known.update(
                f"{os.path.relpath(path, folder)} {found.st_mode}\0".encode(
                    "utf-8", "surrogateescape"
                )
            )
            if stat.S_ISREG(found.st_mode):
                known.update(f"{found.st_size} ".encode())
                with open(path, "rb") as file:  # of a sparse one the beginning is enough
                    known.update(file.read(1 << 20))
            elif stat.S_ISLNK(found.st_mode):
                known.update(os.fsencode(os.readlink(path)))
    return known.hexdigest()
