"""One change to one file of an experiment: raw bytes, or a forged value with a valid checksum."""

from __future__ import annotations

import os
import random
import shutil
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.rig.mutation import forms

CANARY, EXPERIMENT = "canary", "run"
# Names that lead elsewhere, or contain terminal controls. `{canary}` is the absolute path of the
# folder that must be neither read nor written.
_NAMES = (
    "../../{canary_name}", "../../../{canary_name}", "{canary}", "..", ".", "", "/", "a/../../b",
    "{canary}/secret", "x\x00y", "\x1b[31mred\x1b[0m", "a\nb", "\x9b2J", "n" * 5000, "journal",
    ".lock", "head.json", ".holdfast.json", "\u202egnp.exe", "~", "$(touch {canary}/made)",
)  # fmt: skip
_VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 2**31, 2**63, -(2**63), 2**64 - 1, 1e308, float("nan"), float("inf"), "",
    "text", [], {}, [[]], {"unknown": 1}, [1, "two", None], "9" * 5000, 1.5, -0.0,
)  # fmt: skip
_DEEP, _WIDE = 3_000, 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """The change: `path` is relative to the world.

    `is_raw`: no checksum was corrected, so the loss can be noticed.
    """

    path: str
    what: str
    is_raw: bool


def damage_one(world: Path, chance: random.Random) -> Damage:
    """Change one file below `world`, chosen by `chance`; kinds of files have equal weight."""
    kinds: dict[str, list[str]] = {}
    for path in _files(world):
        kinds.setdefault(_kind(path), []).append(path)
    chosen = chance.choice(kinds[chance.choice(sorted(kinds))])
    form = forms.form_of(chosen)
    if form is not None and chance.random() < 0.6:
        what = _forge(world, chosen, form, chance)
        return Damage(path=chosen, what=what, is_raw=False)
    name = chance.choice(sorted(_RAW))
    _RAW[name](world / chosen, world / CANARY, chance)
    return Damage(path=chosen, what=name, is_raw=True)


def _files(world: Path) -> Iterator[str]:
    """The experiment's files, without the canary and the notes of trained epochs."""
    for folder, _, names in sorted(os.walk(world)):
        inside = os.path.relpath(folder, world)
        if inside != "." and not inside.startswith(CANARY):
            yield from (os.path.join(inside, name) for name in sorted(names))


def _kind(path: str) -> str:
    """The kind of a file: segments, checkpoints and trials are one kind each."""
    where = path.partition("/")[0]
    parent, _, name = path.rpartition("/")
    for prefix in ("experiment_state-", "basic-variant-state-", "events.out", ".tmp-"):
        if name.startswith(prefix):
            name = prefix
    if name.endswith(".log"):
        name = "segment"
    if "/checkpoint_" in parent:
        name = f"checkpoint/{'manifest' if name.endswith('.json') else 'file'}"
    return f"{where} {'claim' if parent.endswith('.epochs') else name}"


# -- forged values ------------------------------------------------------------------------------


def _forge(world: Path, path: str, form: forms.Form, chance: random.Random) -> str:
    file = world / path
    tree = form.decode(file.read_bytes())
    places = list(_places(tree))
    for _ in range(20):
        keys, value = chance.choice(places) if places else ((), tree)
        new, what = _forged(value, chance, world / CANARY)
        try:
            data = form.encode(_with(tree, keys, new))
        except (ValueError, TypeError, OverflowError, RecursionError, AttributeError):
            continue  # the format has no word for it
        file.write_bytes(data)
        _make_right(world, path, chance)
        return f"{form.name}: {'.'.join(map(str, keys))} {what}"
    file.write_bytes(form.encode([]))
    return f"{form.name}: everything replaced by []"


def _places(tree: Any, keys: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    children: Iterator[tuple[Any, Any]] = iter(())
    if isinstance(tree, dict):
        children = iter(tree.items())
    elif isinstance(tree, list):
        children = iter(enumerate(tree))
    for key, value in children:
        yield (*keys, key), value
        yield from _places(value, (*keys, key))


def _with(tree: Any, keys: tuple[Any, ...], new: Any) -> Any:
    """A copy of the tree with `new` as the value at `keys`; _REMOVED removes it."""
    if not keys:
        return new
    key, *rest = keys
    copy = dict(tree) if isinstance(tree, dict) else list(tree)
    if not rest and new is _REMOVED:
        del copy[key]
    else:
        copy[key] = _with(copy[key], tuple(rest), new)
    return copy


_REMOVED = object()


def _forged(value: Any, chance: random.Random, canary: Path) -> tuple[Any, str]:
    choice = chance.random()
    if choice < 0.4 and isinstance(value, str):
        name = chance.choice(_NAMES)
        name = name.replace("{canary_name}", canary.name).replace("{canary}", str(canary))
        return name, f"is {name!r:.60}"
    if choice < 0.5:
        return _REMOVED, "is removed"
    if choice < 0.6 and isinstance(value, dict):
        return {**value, chance.choice(_NAMES): 1}, "has an unknown key"
    if choice < 0.7:
        deep: Any = value
        for _ in range(chance.choice((10, 200, _DEEP))):
            deep = [deep]
        return deep, "is nested deep"
    if choice < 0.75:
        return [value] * chance.choice((2, _WIDE)), "is repeated"
    if choice < 0.8 and isinstance(value, int | float):
        return -value, "has another sign"
    new = chance.choice(_VALUES)
    return new, f"is {new!r:.60}"


def _make_right(world: Path, path: str, chance: random.Random) -> None:
    """Correct the checksums of this file in other files, as a forger would."""
    if not path.endswith(".log"):
        return
    root = (world / path).parent.parent
    head = root / "head.json"
    if head.exists():
        tree = forms.JSON.decode(head.read_bytes())
        data = (world / path).read_bytes()
        for segment in tree["segments"]:
            if segment["name"] == path.rpartition("/")[2]:
                segment.update(size=len(data), crc32=zlib.crc32(data))
        head.write_bytes(forms.JSON.encode(tree))
    if chance.random() < 0.5:  # a snapshot next to it would be read instead
        for snapshot in root.glob("experiment_state-*"):
            snapshot.unlink()


# -- raw bytes ----------------------------------------------------------------------------------


def _flip(file: Path, canary: Path, chance: random.Random) -> None:
    data = bytearray(file.read_bytes() or b"\0")
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    file.write_bytes(data)


def _flip_at_start(file: Path, canary: Path, chance: random.Random) -> None:
    data = bytearray(file.read_bytes() or b"\0")
    data[chance.randrange(min(len(data), 16))] ^= 1 << chance.randrange(8)
    file.write_bytes(data)


def _truncate(file: Path, canary: Path, chance: random.Random) -> None:
    os.truncate(file, chance.randrange(max(1, file.stat().st_size)))


def _zero(file: Path, canary: Path, chance: random.Random) -> None:
    data = bytearray(file.read_bytes())
    begin = chance.randrange(max(1, len(data)))
    count = len(data[begin : begin + 512])
    data[begin : begin + count] = bytes(count)
    file.write_bytes(data)


def _append(file: Path, canary: Path, chance: random.Random) -> None:
    with file.open("ab") as stream:
        stream.write(chance.randbytes(chance.choice((1, 8, 300))))


def _shuffle(file: Path, canary: Path, chance: random.Random) -> None:
    data = file.read_bytes()
    at = chance.randrange(max(1, len(data)))
    file.write_bytes(data[at:] + data[:at])


def _empty(file: Path, canary: Path, chance: random.Random) -> None:
    file.write_bytes(b"")


def _remove(file: Path, canary: Path, chance: random.Random) -> None:
    file.unlink()


def _make_folder(file: Path, canary: Path, chance: random.Random) -> None:
    file.unlink()
    file.mkdir()


def _link_out(file: Path, canary: Path, chance: random.Random) -> None:
    file.unlink()
    file.symlink_to(canary / "secret")


def _link_folder_out(file: Path, canary: Path, chance: random.Random) -> None:
    """Replace the folder of the file. The experiment's own place is the user's choice."""
    folder = file.parent
    if folder.name == EXPERIMENT:
        _link_out(file, canary, chance)
        return
    shutil.rmtree(folder)
    folder.symlink_to(canary, target_is_directory=True)


def _make_fifo(file: Path, canary: Path, chance: random.Random) -> None:
    file.unlink()
    os.mkfifo(file)


def _grow(file: Path, canary: Path, chance: random.Random) -> None:
    """Extend the file to 3 GiB, which take no disk space."""
    os.truncate(file, 3 << 30)


_RAW: dict[str, Callable[[Path, Path, random.Random], None]] = {
    "a bit is flipped": _flip,
    "a bit of its beginning is flipped": _flip_at_start,
    "truncated": _truncate,
    "a block is zeroed": _zero,
    "junk is appended": _append,
    "its halves are swapped": _shuffle,
    "emptied": _empty,
    "removed": _remove,
    "a folder in its place": _make_folder,
    "a link leads outside": _link_out,
    "its folder is a link that leads outside": _link_folder_out,
    "a FIFO in its place": _make_fifo,
    "grown to 3 GiB": _grow,
}
