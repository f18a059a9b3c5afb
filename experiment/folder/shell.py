"""Commands that messages suggest, and the places that `holdfast ls` and `fit()` used last.

The completion of a shell reads the file with the places, so this imports little.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from holdfast.compat import ray_path
from holdfast.dataclass import dataclass
from holdfast.syncer.errors import redact


def holdfast_command(*words: str) -> str:
    """`holdfast WORDS`, quoted and without credentials; with the path of Python, if the shell
    would not find the command of this environment."""
    found = shutil.which("holdfast")
    is_ours = found is not None and os.path.dirname(found) == os.path.dirname(sys.executable)
    program = ["holdfast"] if is_ours else [sys.executable, "-m", "holdfast"]
    return shlex.join([*program, *map(redact, words)])


def resume_command(path: str, *options: str) -> str:
    """The command that resumes the experiment at a path or URI, in any folder: it finds the
    modules of the script in the `module_path` that the experiment has recorded."""
    return holdfast_command("resume", *options, path)


def module_path() -> str:
    """The folder in which this script finds its own modules, and the present PYTHONPATH, joined as
    in the latter; "" in a notebook without a PYTHONPATH. For `holdfast resume` there is only the
    PYTHONPATH."""
    main = sys.modules.get("__main__")
    script, spec = getattr(main, "__file__", None), getattr(main, "__spec__", None)
    given = filter(None, ray_path.without(os.environ).get("PYTHONPATH", "").split(os.pathsep))
    folder = Path(os.path.abspath(script)).parent if script is not None else None
    if folder is not None and spec is not None:  # `python -m package.train`
        is_ours = spec.name.partition(".")[0] == __name__.partition(".")[0]
        folder = None if is_ours else (folder, *folder.parents)[spec.name.count(".")]
    elif folder == Path(sys.executable).parent:
        folder = None  # the command
    return os.pathsep.join([*([str(folder)] if folder else []), *map(os.path.abspath, given)])


_MOST_PLACES = 10
_MOST_NAMES = 2_000
_MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedPlace:
    """A directory or URI, without credentials, and the names of the experiments there."""

    place: str
    names: tuple[str, ...] = ()


def listed_file(environ: Mapping[str, str]) -> Path:
    """`holdfast/listed.json` in the user's folder for states, by the XDG rules."""
    state = environ.get("XDG_STATE_HOME", "")
    folder = Path(state) if os.path.isabs(state) else Path("~/.local/state").expanduser()
    return folder / "holdfast" / "listed.json"


def read_listed(environ: Mapping[str, str]) -> list[ListedPlace]:
    """The places that were used last, the newest first; none if the file cannot be used."""
    try:
        with open(listed_file(environ), "rb") as file:
            found = json.loads(file.read(_MOST_BYTES))
    except (OSError, ValueError, RuntimeError):  # RuntimeError: no home, or nested too deeply
        return []
    match found:
        case {"places": list(several)}:
            return list(_places(several))[:_MOST_PLACES]
        case _:
            return []


def _places(several: Sequence[Any]) -> Iterator[ListedPlace]:
    for one in several:
        match one:
            case {"place": str(place), "names": list(names)} if place.strip():
                known = tuple(name for name in names if isinstance(name, str))
                yield ListedPlace(place=place, names=known)


def known_uri(environ: Mapping[str, str], path: str) -> str:
    """The URI of a path in a bucket, as `Result.path` has it, if its place was used last; any
    other path unchanged."""
    for one in () if os.path.exists(path) else read_listed(environ):
        scheme, separator, rest = one.place.partition("://")
        inside, question, query = rest.partition("?")
        if separator and f"{path}/".startswith(f"{inside.strip('/')}/"):
            return f"{scheme}://{path}{question}{query}"
    return path


def note_listed(environ: Mapping[str, str], place: str, names: Sequence[str]) -> None:
    """Remember a place, without credentials, and the names there, and forget folders that do not
    exist any more. A failure does not matter."""
    known = read_listed(environ)
    if names or any(one.place == place for one in known):
        kept = [one for one in known if "://" in one.place or os.path.isdir(one.place)]
        _note(environ, known, kept, ListedPlace(place=place, names=tuple(names[:_MOST_NAMES])))


def note_run(environ: Mapping[str, str], place: str, name: str) -> None:
    """Remember the place of a run, without credentials. A failure does not matter.

    Other places are not looked at: one may be on a server that does not answer.
    """
    known = read_listed(environ)
    names = next((one.names for one in known if one.place == place), ())
    if "://" in place and name not in names:  # a folder shows itself what is in it
        names = (*names, name)[-_MOST_NAMES:]
    _note(environ, known, known, ListedPlace(place=place, names=names))


def _note(
    environ: Mapping[str, str],
    known: list[ListedPlace],
    kept: list[ListedPlace],
    newest: ListedPlace,
) -> None:
    """Write the newest place and those that are `kept` of the `known` ones, unless nothing has
    changed."""
    others = [one for one in kept if one.place != newest.place]
    listed = [newest, *others][:_MOST_PLACES]
    if listed == known:
        return
    from holdfast.syncer.files.durable import make_folder, new_file_for, write_all

    places = [{"place": one.place, "names": list(one.names)} for one in listed]
    with suppress(OSError, RuntimeError):
        data = json.dumps({"places": places}).encode()
        while len(data) > _MOST_BYTES:  # which would not be read
            places.pop()
            data = json.dumps({"places": places}).encode()
        path = listed_file(environ)
        make_folder(path.parent, 0o700)
        with new_file_for(path, 0o600) as file:
            write_all(file.fileno(), data)
