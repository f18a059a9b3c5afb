"""Makes workers look like the user's script: its arguments, its `__main__`, its `runtime_env`.

What would start the script again in a trial is refused.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, NoReturn

from holdfast.dataclass import dataclass
from holdfast.experiment.user_objects.pickling import SCRIPT, cell_content
from holdfast.runtime.fleet.delivery import DIRECTORY, MODULES
from holdfast.runtime.interpreter import absolute_pythonpath, changed
from holdfast.trial.config import RuntimeEnv
from holdfast.trial.errors import InvalidConfig

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
        yield from map(cell_content, value.__closure__ or ())
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


# The parts that an experiment stores, so that a restore can ask for them: names, never values.
NAMES = "env_vars"
HAS_WORKING_DIR = "working_dir"


def located(environment: RuntimeEnv, *, where: str) -> RuntimeEnv:
    """The environment with an absolute `working_dir`. Raises InvalidConfig if it does not
    exist."""
    given = environment.working_dir
    if given is None:
        return environment
    path = os.path.abspath(os.path.expanduser(given))
    if not os.path.isdir(path):
        wrong = "is not a directory" if os.path.exists(path) else "does not exist"
        raise InvalidConfig(f"{where}: working_dir {path!r} {wrong}")
    if not os.access(path, os.R_OK | os.X_OK):
        raise InvalidConfig(f"{where}: working_dir {path!r} cannot be read by this user")
    return replace(environment, working_dir=path)


def kept_of(environment: RuntimeEnv) -> dict[str, Any]:
    """The part in the journal: the names of the variables, and whether there is a directory."""
    kept: dict[str, Any] = {}
    if environment.env_vars:
        kept[NAMES] = sorted(environment.env_vars)
    if environment.working_dir is not None:
        kept[HAS_WORKING_DIR] = True
    return kept


def check_given_again(kept: Mapping[str, Any], environment: RuntimeEnv) -> None:
    """Raises InvalidConfig if the restore lacks parts of the environment that the experiment began
    with.

    A variable counts as present if the script's own environment has it.
    """
    missing = environment.missing(kept.get(NAMES, []), os.environ)
    gone = [f"the variable {name}" for name in missing]
    if kept.get(HAS_WORKING_DIR) and environment.working_dir is None:
        gone.append("the working_dir")
    if gone:
        raise InvalidConfig(
            f"the experiment began with a runtime_env, whose values are stored in no file, and "
            f"this restore lacks {', '.join(gone)}: pass it again, in "
            f"restore(..., runtime_env={{...}}) or in holdfast.init(runtime_env={{...}}), or set "
            f"the variables in the environment of this script"
        )


@contextmanager
def applied_here(environment: RuntimeEnv) -> Iterator[None]:
    """Set the variables and the import path in this process: for a trial in debug mode."""
    variables = environment.env_vars
    variables = {**variables, **absolute_pythonpath({**os.environ, **variables})}
    path = list(sys.path)
    if environment.working_dir is not None:
        sys.path.insert(0, environment.working_dir)
    try:
        with changed(os.environ, variables):
            yield
    finally:
        sys.path[:] = path


# Of lightning.pytorch, lightning.fabric, pytorch_lightning and lightning_fabric.
_MODULE = ".strategies.launchers.subprocess_script"


class _Refusing:
    """Finds that module, and replaces the method of its launcher that starts processes."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not name.endswith(_MODULE):
            return None
        spec = PathFinder.find_spec(name, path, target)
        loader: Any = spec and spec.loader
        if loader is not None:
            execute = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                launcher = getattr(module, "_SubprocessScriptLauncher", None)
                if launcher is not None:
                    launcher._call_children_scripts = _refuse

            loader.exec_module = exec_module
        return spec


def refuse_in_trials() -> None:
    """Let the launcher raise in this process and those forked from it, which run trials."""
    sys.meta_path.insert(0, _Refusing())


def _refuse(*_: object) -> NoReturn:
    raise InvalidConfig(
        "Lightning's strategies 'auto' and 'ddp' start the script again for each device, which "
        "would begin the run again in a trial. Give its Trainer strategy='ddp_spawn' or "
        "'ddp_fork'; or train on the ranks of a TorchTrainer, with DDPStrategy() of "
        "holdfast.train.lightning"
    )
