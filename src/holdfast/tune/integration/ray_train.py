"""A trainer inside a trial: `fit()` of the trainer reports to the trial of the Tuner around it."""

from __future__ import annotations

import os
from typing import Any, Final

from holdfast.experiment.callbacks.callback import TrainRunContext, UserCallback
from holdfast.experiment.worker.context import report
from holdfast.experiment.worker.session import TrialStopped, running
from holdfast.runtime.process_control import STOP
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.trial.errors import TuneError

# The metric with the path of the training's checkpoint.
CHECKPOINT_PATH_KEY: Final = "checkpoint_path"


class TuneReportCallback(UserCallback):
    """Reports each row of a training to the trial that runs `trainer.fit()`:

        def trial(config):
            trainer = TorchTrainer(loop, train_loop_config=config, run_config=train.RunConfig(
                name=..., storage_path=..., callbacks=[TuneReportCallback()]))
            trainer.fit(resume="auto")

    The checkpoint stays in the training's folder; the trial's row has its path, as
    `checkpoint_path`: an absolute one, which a move of the folders leaves behind. If the trial is
    stopped, the training ends with it.

    `Tuner(trainer, param_space={"train_loop_config": ...})` does the same with one journal, and
    checkpoints that the schedulers know. Raises TuneError outside a trial.
    """

    def __init__(self) -> None:
        if running() is None:
            raise TuneError(
                "TuneReportCallback reports to the trial that runs trainer.fit(): make it in the "
                "function that a Tuner runs"
            )

    def after_report(
        self,
        run_context: TrainRunContext,
        metrics: list[dict[str, Any]],
        checkpoint: Checkpoint | None,
    ) -> None:
        row = dict(metrics[0])
        if checkpoint is not None:
            row[CHECKPOINT_PATH_KEY] = checkpoint.path
        try:
            report(row)
        except TrialStopped:
            # Here it would end only this thread: fit() waits in the main one.
            os.kill(os.getpid(), STOP)
