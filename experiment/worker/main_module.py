"""Makes workers look like the user's script: its arguments, its `__main__`, and in that the parts
that pickles name."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator, Mapping
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CellType, FunctionType
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.experiment.user_objects.pickling import SCRIPT
from holdfast.runtime.fleet.delivery import DIRECTORY, MODULES

_MAIN, _MAIN_OF_CHILDREN = "__main__", "__mp_main__"


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """The script whose process has called `fit()`.

    It has no `file` in a notebook, an interactive session and under `-c`: `multiprocessing` cannot
    import these again, in a worker as in Python itself. `module` is the name that `python -m` got.
    The current and the import path travel by `holdfast.runtime.interpreter`.
    """

    argv: list[str]
    orig_argv: list[str]
    file: str | None
    module: str | None
    working_dir: str | None

    @classmethod
    def here(cls, working_dir: str | None) -> Script:
        """That of this process. `working_dir` is the folder that nodes get."""
        main = sys.modules[_MAIN]
        return cls(
            argv=[*map(str, sys.argv)],
            orig_argv=[*map(str, sys.orig_argv)],
            file=getattr(main, "__file__", None),
            module=getattr(getattr(main, "__spec__", None), "name", None),
            working_dir=working_dir,
        )

    def enter(self, node_dir: str) -> None:
        """Make this process look like it. `node_dir` is the scratch folder of a node's agent.

        Nothing of the script runs here. Children that `multiprocessing` starts import it under
        another name, by which they may also pickle what they return.
        """
        sys.argv, sys.orig_argv = self.argv, self.orig_argv
        main = sys.modules[_MAIN]
        sys.modules[_MAIN_OF_CHILDREN] = main
        if self.file is not None:
            main.__file__ = self._file_on(node_dir)
        if self.module is not None:
            main.__spec__ = ModuleSpec(self.module, None, origin=main.__file__)
            main.__package__ = main.__spec__.parent

    def _file_on(self, node_dir: str) -> str:
        """Its file; on a node the copy that was sent there, if there is one."""
        assert self.file is not None
        file = Path(self.file)
        sent = [Path(node_dir, MODULES, *file.parts[-1 - (self.module or "").count(".") :])]
        if self.working_dir and file.is_relative_to(self.working_dir):
            sent.insert(0, Path(node_dir, DIRECTORY, file.relative_to(self.working_dir)))
        return next((str(one) for one in sent if node_dir and one.is_file()), self.file)


def adopt(*values: Any) -> None:
    """Copy the script's functions and classes that `values` use into `__main__` of this process.

    cloudpickle sends them by value. Code that pickles by name inside a trial (a checkpoint with an
    object of the script's class, a multiprocessing pool) looks for them in `__main__`.
    """
    main, seen, waiting = sys.modules[_MAIN], set[int](), list(values)
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        waiting += _parts(value)
        if _is_of_script(value) and "." not in value.__qualname__:
            setattr(main, value.__name__, value)


def _is_of_script(value: Any) -> bool:
    return isinstance(value, (FunctionType, type)) and value.__module__ in SCRIPT


def _parts(value: Any) -> Iterator[Any]:
    """The parts of a value that may refer to more of the script. Lists are skipped if they may be
    data."""
    if isinstance(value, FunctionType):
        if value.__module__ in SCRIPT:
            yield from filter(_leads_on, value.__globals__.values())
        yield from (_content(cell) for cell in value.__closure__ or ())
    elif isinstance(value, functools.partial):
        yield from (value.func, *value.args, *value.keywords.values())
    elif isinstance(value, type):
        yield from value.__bases__
        if value.__module__ in SCRIPT:
            yield from (getattr(part, "__func__", part) for part in vars(value).values())
    elif isinstance(value, Mapping):
        yield from value.values()
    elif _leads_on(value):
        yield type(value)
        yield from getattr(value, "__dict__", {}).values()


def _leads_on(value: Any) -> bool:
    return _is_of_script(value) or type(value).__module__ in SCRIPT


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not bound yet
        return None
