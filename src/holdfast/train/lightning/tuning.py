"""Callbacks that report to a trial whenever Lightning calls a hook of the user's choice."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holdfast.experiment.worker.context import report
from holdfast.train.lightning.flavour import plain
from holdfast.train.lightning.preparing import check_ranks
from holdfast.train.lightning.ranks import keep_sigterm
from holdfast.train.lightning.reporting import report_state
from holdfast.train.reporting import say_nothing_reported
from holdfast.trial.errors import InvalidConfig

# One name, some names, or the names to report by those that Lightning has; None is all.
Metrics = str | Sequence[str] | Mapping[str, str] | None

_HOOKS = (
    "fit_start",
    "fit_end",
    "sanity_check_start",
    "sanity_check_end",
    "train_start",
    "train_end",
    "train_epoch_start",
    "train_epoch_end",
    "train_batch_start",
    "train_batch_end",
    "validation_start",
    "validation_end",
    "validation_epoch_start",
    "validation_epoch_end",
    "validation_batch_start",
    "validation_batch_end",
    "test_start",
    "test_end",
    "test_epoch_start",
    "test_epoch_end",
    "test_batch_start",
    "test_batch_end",
)


class HookReport:
    """Reports what Lightning has logged at each call of `on_<on>`, one name or several of them.

    `metrics` chooses: a name, some names, or `{name to report: Lightning's name}`; None is all
    that there is. One that has not been logged yet is left out, and told once in the trial's
    stderr. During Lightning's sanity check nothing is reported.

    Raises InvalidConfig for what is no hook, or no choice of metrics.
    """

    def __init__(
        self, metrics: Metrics = None, on: str | Sequence[str] = "validation_end"
    ) -> None:
        super().__init__()
        self._metrics = _by_name(metrics)
        self._told: set[str] = set()
        self._was_called = False
        hooks = [on] if isinstance(on, str) else list(on)
        self._hooks_of_fit = [f"on_{name}" for name in hooks if not name.startswith("test_")]
        for name in hooks:
            if name not in _HOOKS:
                raise InvalidConfig(f"on={name!r} is none of {', '.join(_HOOKS)}")
            self._hook(f"on_{name}")

    def report(self, trainer: Any) -> None:
        metrics = self._chosen(trainer.callback_metrics)
        if metrics:
            report(metrics)

    def on_sanity_check_start(self, trainer: Any, pl_module: Any) -> None:
        keep_sigterm()

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Raises InvalidConfig where each rank would train alone."""
        check_ranks(trainer)
        keep_sigterm()

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        if self._hooks_of_fit and not self._was_called:
            say_nothing_reported(
                f"Lightning has not called {' or '.join(self._hooks_of_fit)}. Is there a "
                f"val_dataloader, or should the callback have another on=...?"
            )

    def _hook(self, name: str) -> None:
        plainly: Callable[..., Any] = getattr(self, name)

        def hook(trainer: Any, *args: Any, **kwargs: Any) -> None:
            self._was_called |= not trainer.sanity_checking
            plainly(trainer, *args, **kwargs)
            if not trainer.sanity_checking:
                self.report(trainer)

        setattr(self, name, hook)

    def _chosen(self, logged: Mapping[str, Any]) -> dict[str, Any]:
        found = plain(logged)
        if self._metrics is None:
            return found
        for name in set(self._metrics.values()) - found.keys() - self._told:
            self._told.add(name)
            print(
                f"holdfast: {name!r} is not reported: Lightning has logged "
                f"{', '.join(map(repr, sorted(found))) or 'nothing'} so far",
                file=sys.stderr,
            )
        return {name: found[key] for name, key in self._metrics.items() if key in found}


class HookReportCheckpoint(HookReport):
    """Reports as `TuneReportCallback` does, with a checkpoint in `filename`.

    The checkpoint is what `trainer.save_checkpoint` writes.

    Give it to `trainer.fit(..., ckpt_path=...)`. Nothing is saved with `save_checkpoints=False`.
    """

    def __init__(
        self,
        metrics: Metrics = None,
        filename: str = "checkpoint",
        save_checkpoints: bool = True,
        on: str | Sequence[str] = "validation_end",
    ) -> None:
        super().__init__(metrics, on)
        self._filename = filename
        self._saves = save_checkpoints

    def report(self, trainer: Any) -> None:
        if not self._saves:
            super().report(trainer)
        elif metrics := self._chosen(trainer.callback_metrics):
            report_state(trainer, metrics, self._filename)


def _by_name(metrics: Any) -> dict[str, str] | None:
    """What to report, by its name; None is all. Raises InvalidConfig."""
    if metrics is None:
        return None
    names = [metrics] if isinstance(metrics, str) else metrics
    if isinstance(names, Mapping):
        return dict(names)
    if isinstance(names, Sequence) and all(isinstance(name, str) for name in names):
        return {name: name for name in names}
    raise InvalidConfig(
        f"metrics={metrics!r} must be a name, a list of names, or a dict of Lightning's names by "
        f"those to report them as"
    )
