"""Any bytes in a file or an object: its reader raises only what it documents."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.experiment.callbacks import thread
from holdfast.experiment.folder.nodes_file import NodeBeat, NodesNews, encode, parse
from holdfast.experiment.trackers.delivery import decode_accounts
from holdfast.experiment.user_objects.stored_objects import stored
from holdfast.experiment.user_objects.tuner_file import TunerFile
from holdfast.experiment.user_objects.tuner_file import write as write_tuner_file
from holdfast.scheduler.policies.pbt import schedule_of
from holdfast.syncer.artifacts.settings import INDEX_NAME
from holdfast.syncer.artifacts.stored_index import (
    ListedFile,
    LocalIndex,
    listing_bytes,
    read_listing,
)
from holdfast.syncer.checkpoint.manifest import FileFact, Manifest
from holdfast.syncer.errors import ManifestMismatch, StorageError
from holdfast.syncer.journal.journal import Journal, read, segment_name
from holdfast.syncer.journal.stretches import Stretch, encode_head, parse_head, stretches_of
from holdfast.syncer.stores.store import parse_json, read_note
from holdfast.syncer.uploader.lock import Holder

Parse = Callable[[bytes, Path], object]


@dataclass(frozen=True)
class Form:
    """`sound` is holdfast's own content; `pack` and `unpack` convert it to its values, under a
    checksum.

    `error` is the reader's documented error; without it, the reader reports the fault otherwise.
    """

    sound: bytes
    parse: Parse
    error: type[Exception] | None = None
    pack: Callable[[Any], bytes] = lambda plain: json.dumps(plain).encode()
    unpack: Callable[[bytes], Any] = json.loads


def in_file(read_file: Callable[[Path], object], name: str = "file") -> Parse:
    def parse(data: bytes, folder: Path) -> object:
        (folder / name).write_bytes(data)
        return read_file(folder / name)

    return parse


def index_of(path: Path) -> object:
    index = LocalIndex(path.parent)
    index.open_read_only()
    known = index.load("").stored
    assert not [key for key in known if key.startswith("/") or ".." in key.split("/")]
    return known


def checked(plain: Any) -> bytes:
    text = json.dumps(plain).encode()
    return b"%08x\n" % zlib.crc32(text) + text


def head_of(data: bytes, folder: Path) -> object:
    return [stretch.name for stretch in stretches_of(parse_head(data))]


def states_packed(plain: Any) -> bytes:
    """With the checksum that the writer would add."""
    states = plain.get("states") if type(plain) is dict else None
    if type(states) is dict and all(
        type(name) is str and type(state) is bytes for name, state in states.items()
    ):
        plain = {**plain, "crc32": thread._checksum(states)}
    packed: bytes = msgpack.packb(plain)
    return packed


def states_bytes() -> bytes:
    with TemporaryDirectory() as folder:
        thread.write_states(Path(folder, "states"), {"Counting": {"seen": 3}})
        return Path(folder, "states").read_bytes()


def tuner_bytes() -> bytes:
    with TemporaryDirectory() as folder:
        fields = {"missing": stored(["x"], "missing"), "stop": stored({"a": (1, 2)}, "stop")}
        write_tuner_file(Path(folder, "tuner.pkl"), fields)
        return Path(folder, "tuner.pkl").read_bytes()


def tuner_packed(plain: Any) -> bytes:
    body: bytes = msgpack.packb(plain)
    return (
        b"HFTUNR\0\2"
        + zlib.crc32(body).to_bytes(4, "little")
        + len(body).to_bytes(8, "little")
        + body
    )


def tuner_of(path: Path) -> object:
    return TunerFile(path, trusted=False).fault


def journal_bytes() -> bytes:
    with TemporaryDirectory() as folder:
        journal = Journal(Path(folder))
        journal.append([b"one", b"two"])
        journal.close()
        return Path(folder, segment_name(0)).read_bytes()


def records_of(path: Path) -> object:
    return list(read(path.parent))


def holder_of(path: Path) -> object:
    with path.open("rb") as file:
        return str(Holder.read(file.fileno())), Holder.read(file.fileno()).is_controller


def unpacked(data: bytes) -> Any:
    return msgpack.unpackb(data, strict_map_key=False)


MARK = {"attempt": 1, "iteration": 2, "stage": 1, "rows": 2}
SPAN = {"after": MARK, "attempt": 1, "from_iteration": 3, "to_iteration": 4, "why": "no"}
DELIVERED = {"t": {"delivered": MARK, "refused": [SPAN]}}
CHECKED = json.dumps(DELIVERED, sort_keys=True, separators=(",", ":")).encode()
ACCOUNTS = {
    "format": 3,
    "experiment": "me",
    "crc32": f"{zlib.crc32(CHECKED):08x}",
    "trials": DELIVERED,
}
FORMS = {
    "manifest": Form(
        Manifest(files={"a/b": FileFact(size=3, checksum="ff")}, empty_folders=("c",)).to_bytes(),
        lambda data, folder: Manifest.from_bytes(data, "here"),
        ManifestMismatch,
    ),
    "listing": Form(
        listing_bytes({"a/b": ListedFile(size=3, checksum="ff", mtime_ns=5)}),
        lambda data, folder: read_listing(data),
        ValueError,
    ),
    "head and stretches": Form(
        encode_head(
            experiment_id="x",
            epoch=".epochs/000001",
            stretches=[
                Stretch(segment=0, start=0, size=8, crc32=1),
                Stretch(segment=0, start=8, size=9, crc32=2),
            ],
        ),
        head_of,
        ValueError,
    ),
    "index of artifacts": Form(
        checked({"format": 1, "epoch": 1, "since": 1, "listed": True,
                 "files": {"a/b": [1, 2, 3, "ff", True]}}),
        in_file(index_of, INDEX_NAME),
        pack=checked,
        unpack=lambda data: json.loads(data[9:]),
    ),
    "nodes.json": Form(
        encode(
            NodesNews(
                format=1,
                nodes=[NodeBeat(node="a", at=1.5, disk_free_bytes=7)],
                waiting="b",
            )
        ),
        lambda data, folder: parse(data),
        ValueError,
    ),
    "callbacks.msgpack": Form(
        states_bytes(), in_file(thread.read_states), ValueError, states_packed, unpacked
    ),
    "tuner.pkl": Form(
        tuner_bytes(),
        in_file(tuner_of),
        pack=tuner_packed,
        unpack=lambda data: unpacked(data[20:]),
    ),
    "policy": Form(
        json.dumps(["tag", "source", 3, 2, {"lr": 1}, {"lr": 2}]).encode(),
        lambda data, folder: schedule_of(data.decode()),
        ValueError,
    ),
    "cursor of a tracker": Form(
        json.dumps(ACCOUNTS).encode(),
        lambda data, folder: decode_accounts(parse_json(data), "me"),
        ValueError,
    ),
    "journal": Form(
        journal_bytes(),
        in_file(records_of, segment_name(0)),
        StorageError,
        pack=lambda plain: bytes(plain, "latin-1") if isinstance(plain, str) else b"",
        unpack=lambda data: data.decode("latin-1"),
    ),
    "lock": Form(
        json.dumps({"pid": 3, "host": "h", "command": "c", "since": 2.0}).encode(),
        in_file(holder_of),
    ),
    "note": Form(b"/there", in_file(read_note), OSError, unpack=lambda data: data.decode()),
}  # fmt: skip
NAMES = st.sampled_from(["../x", "/x", "a//b", ".", "a\0b", "\x1b[2J", "000000.log", "\ud800"])
ODD = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats()
    | NAMES
    | st.text(max_size=3)
    | st.binary(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(NAMES | st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)


def places(plain: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield above
    parts: Any = plain.items() if type(plain) is dict else ()
    for key, part in enumerate(plain) if type(plain) is list else parts:
        yield from places(part, (*above, key))


def changed(plain: Any, place: tuple[Any, ...], how: str, value: Any) -> Any:
    """The same with another value at that place, an additional field there, or none."""
    if not place:
        return value
    twin = list(plain) if type(plain) is list else dict(plain)
    if len(place) > 1:
        twin[place[0]] = changed(plain[place[0]], place[1:], how, value)
    elif how == "gone":
        del twin[place[0]]
    elif how == "renamed" and type(twin) is dict and type(value) in (str, int):
        twin[value] = twin.pop(place[0])
    else:
        twin[place[0]] = value
    return twin


def ends_well(form: Form, data: bytes, folder: Path) -> None:
    with suppress(*([form.error] if form.error else [])):
        form.parse(data, folder)


@pytest.mark.parametrize("name", FORMS)
def test_what_we_write_is_read(name: str, tmp_path: Path) -> None:
    form = FORMS[name]
    form.parse(form.sound, tmp_path)
    form.parse(form.pack(form.unpack(form.sound)), tmp_path)


@pytest.mark.parametrize("name", FORMS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.binary(max_size=64), at=st.integers(0, 400), cuts=st.booleans())
def test_any_bytes_are_read_or_refused(
    name: str, data: bytes, at: int, cuts: bool, tmp_path: Path
) -> None:
    """Bytes in place of holdfast's content, in the middle of it, or from there on."""
    form = FORMS[name]
    at = min(at, len(form.sound))
    rest = b"" if cuts else form.sound[at + len(data) :]
    ends_well(form, form.sound[:at] + data + rest, tmp_path)


@pytest.mark.parametrize("brackets", ["[", '{"a":', "\x91"])
@pytest.mark.parametrize("name", FORMS)
def test_what_is_nested_without_end_is_refused(name: str, brackets: str, tmp_path: Path) -> None:
    ends_well(FORMS[name], 200_000 * brackets.encode("latin-1"), tmp_path)


@pytest.mark.parametrize("name", FORMS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(draws=st.data(), how=st.sampled_from(["other", "gone", "renamed"]), value=ODD)
def test_any_content_is_read_or_refused(
    name: str, draws: st.DataObject, how: str, value: Any, tmp_path: Path
) -> None:
    """With a checksum that is right."""
    form = FORMS[name]
    plain = form.unpack(form.sound)
    place = draws.draw(st.sampled_from(list(places(plain))))
    try:
        data = form.pack(changed(plain, place, how, value))
    except (TypeError, ValueError):  # JSON cannot hold bytes or half a character
        return
    ends_well(form, data, tmp_path)
