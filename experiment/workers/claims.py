"""What a worker says, checked by type and range before it becomes a fact in the journal.

A worker runs the user's code, which can write anything to its socket. Each function here raises
ValueError, naming the field, for what no worker of ours says; the caller fails that one trial.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import Any

from holdfast.experiment.worker.metrics import DEEPEST, LONGEST_LIST, LONGEST_TEXT
from holdfast.runtime import safe_text
from holdfast.trial.checkpoint import CheckpointRecord, CheckpointUploadMode
from holdfast.trial.errors import Failure

# The beginning of the year 9999: `datetime` knows no later moment in every time zone.
_LATEST_S = 253_370_764_800.0
# 3,000 years of training.
_LONGEST_S = 1e11
_LARGEST = (1 << 63) - 1
# Folders that a reader holds are passed over, a few at most. A number far ahead would have all
# those before it looked for.
_FURTHEST_INDEX = 100_000
_LONGEST_NAME = 255
# Lines are joined by the worker, so many characters at most.
_LONGEST_LOG = 1 << 18
_LONGEST_KEY = 1 << 16

_SIMPLE = frozenset({float, int, bool, type(None)})
_RECORD = frozenset(
    {"index", "iteration", "attempt", "files", "size_bytes", "time_total_s", "upload"}
)
_KINDS = ("user", "setup")


def whole(value: object, name: str, *, least: int = 0, most: int = _LARGEST) -> int:
    """An integer of this range; True is none."""
    if type(value) is not int or not least <= value <= most:
        allowed = f"a whole number from {least} to {most}"
        raise ValueError(f"{name} must be {allowed}, not {value!r:.60}")
    return value


def exactly(value: object, name: str, expected: int) -> int:
    if type(value) is not int or value != expected:
        raise ValueError(f"{name} must be {expected}, not {value!r:.60}")
    return value


def moment(value: object, name: str) -> float:
    """Seconds since 1970, before the year 9999."""
    return _number(value, name, _LATEST_S)


def duration(value: object, name: str) -> float:
    return _number(value, name, _LONGEST_S)


def _number(value: object, name: str, most: float) -> float:
    # NaN is in no range.
    if type(value) not in (float, int) or not 0 <= value <= most:  # type: ignore[operator]
        raise ValueError(f"{name} must be from 0 to {most:g} s, not {value!r:.60}")
    return float(value)  # type: ignore[arg-type]


def short_text(value: object, name: str, longest: int = _LONGEST_NAME) -> str:
    """One line that may be shown in a terminal."""
    if type(value) is not str or len(value) > longest:
        raise ValueError(f"{name} must be text of at most {longest} characters, not {value!r:.60}")
    if any(unicodedata.category(letter).startswith("C") for letter in value):
        raise ValueError(f"{name} has control characters: {value!r:.60}")
    return value


def long_text(value: object, name: str, longest: int = safe_text.LONGEST_TEXT) -> str:
    """Text of several lines, shortened."""
    if type(value) is not str:
        raise ValueError(f"{name} must be text, not {value!r:.60}")
    return safe_text.shortened(value, longest)


def log_text(value: object) -> str:
    return long_text(value, "the printed text", _LONGEST_LOG)


def metrics(value: object) -> dict[str, Any]:
    """Plain values with text as keys; as `plain_metrics` makes them."""
    if type(value) is not dict:
        raise ValueError(f"metrics must be a dict, not {value!r:.60}")
    if not all(type(key) is str and type(part) in _SIMPLE for key, part in value.items()):
        _check_plain(value, "metrics", 0)
    return value


def _check_plain(value: object, name: str, depth: int) -> None:
    if depth > DEEPEST:
        raise ValueError(f"{name} is nested more than {DEEPEST} deep")
    kind = type(value)
    if kind in _SIMPLE:
        return
    if isinstance(value, str):
        if len(value) > LONGEST_TEXT:
            raise ValueError(f"{name} is a text of {len(value):,} characters")
    elif isinstance(value, list):
        if len(value) > LONGEST_LIST:
            raise ValueError(f"{name} is a list of {len(value):,} values")
        for part in value:
            _check_plain(part, name, depth + 1)
    elif isinstance(value, dict):
        for key, part in value.items():
            if not isinstance(key, str) or len(key) > _LONGEST_KEY:
                raise ValueError(f"a key of {name} must be text, not {key!r:.60}")
            _check_plain(part, f"{key:.60}", depth + 1)
    else:
        raise ValueError(f"{name} is a {kind.__name__}, which is not a plain value")


def record(
    plain: object, *, attempt: int, iteration: int, least_index: int, is_part: bool = False
) -> CheckpointRecord:
    """A checkpoint of this attempt and iteration. `is_part`: a rank's, which has no number yet."""
    if type(plain) is not dict or not plain.keys() >= _RECORD:
        raise ValueError(f"a checkpoint must be a dict with {sorted(_RECORD)}, not {plain!r:.60}")
    most_index = least_index + (0 if is_part else _FURTHEST_INDEX)
    upload = plain["upload"]
    if upload not in CheckpointUploadMode.__members__:
        raise ValueError(f"upload must be one of {[*CheckpointUploadMode]}, not {upload!r:.60}")
    return CheckpointRecord(
        index=whole(plain["index"], "index", least=least_index, most=most_index),
        iteration=exactly(plain["iteration"], "the checkpoint's iteration", iteration),
        attempt=exactly(plain["attempt"], "the checkpoint's attempt", attempt),
        files=whole(plain["files"], "files"),
        size_bytes=whole(plain["size_bytes"], "size_bytes"),
        time_total_s=duration(plain["time_total_s"], "time_total_s"),
        upload=CheckpointUploadMode(upload),
    )


def failure(plain: Mapping[str, Any], *, pid: int) -> Failure:
    """What user code raised, in the process `pid`."""
    if plain.get("kind") not in _KINDS:
        raise ValueError(f"the kind of a failure must be one of {_KINDS}")
    return Failure(
        kind=plain["kind"],
        type_name=short_text(plain.get("type_name"), "type_name", 1024),
        message=long_text(plain.get("message"), "message"),
        traceback=long_text(plain.get("traceback", ""), "traceback"),
        pid=pid or None,
        hostname=short_text(plain.get("hostname", ""), "hostname"),
    )


def clashes(value: object, ranks: int) -> dict[str, list[int]]:
    """Which files of one name came from which ranks."""
    if type(value) is not dict:
        raise ValueError(f"clashes must be a dict, not {value!r:.60}")
    return {
        long_text(name, "a file's name", 4096): _ranks(found, ranks)
        for name, found in value.items()
    }


def _ranks(value: object, ranks: int) -> list[int]:
    if not isinstance(value, list) or not value:
        raise ValueError(f"ranks must be a list, not {value!r:.60}")
    return [whole(rank, "rank", most=ranks - 1) for rank in value]
