"""Callbacks that report to a trial at each Lightning hook that the user chose."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holdfast.experiment.worker.context import report
from holdfast.experiment.worker.session import tell
from holdfast.train.lightning.flavour import plain
from holdfast.train.lightning.preparing import check_ranks
from holdfast.train.lightning.ranks import keep_sigterm
from holdfast.train.lightning.reporting import report_state
from holdfast.train.reporting import Metrics, by_name, check_metrics, say_nothing_reported
from holdfast.trial.errors import InvalidConfig

_PHASES = [
    f"{of}{part}" for of in ("train", "validation", "test") for part in ("", "_epoch", "_batch")
]
_HOOKS = tuple(
    f"{of}_{when}" for of in ("fit", "sanity_check", *_PHASES) for when in ("start", "end")
)


class HookReport:
    """Reports the metrics that Lightning has logged, at each call of `on_<on>`.

    `on` is the name of a hook, or several. `metrics` chooses what to report: a name, a list of
    names, `{name to report: Lightning's name}`, or None for all. A metric that is not logged yet
    is left out, with one warning in the trial's stderr. Lightning's sanity check reports nothing.

    Raises InvalidConfig if `on` is not a hook, or `metrics` not a choice of metrics.
    """

    def __init__(
        self, metrics: Metrics = None, on: str | Sequence[str] = "validation_end"
    ) -> None:
        super().__init__()
        check_metrics(metrics)
        self._metrics = by_name(metrics)
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
        """Raises InvalidConfig if each rank would train alone."""
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
            tell(
                f"holdfast: {name!r} is not reported: Lightning has logged "
                f"{', '.join(map(repr, sorted(found))) or 'nothing'} so far"
            )
        return {name: found[key] for name, key in self._metrics.items() if key in found}


class HookReportCheckpoint(HookReport):
    """Reports as `TuneReportCallback` does, and saves a checkpoint as `filename`.

    `trainer.save_checkpoint` writes it; give it to `trainer.fit(..., ckpt_path=...)` to resume.
    With `save_checkpoints=False` nothing is saved.
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
