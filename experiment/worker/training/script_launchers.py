"""Refuses what Lightning's launcher of scripts does: to start the script again for each device."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any, NoReturn

from holdfast.trial.errors import InvalidConfig

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
