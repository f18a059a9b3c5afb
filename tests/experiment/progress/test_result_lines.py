"""The lines about each trial and result that `verbose=2` and `3` add."""

from __future__ import annotations

from typing import Any

from holdfast.experiment.callbacks.trial_view import Surroundings, Views
from holdfast.experiment.progress.reporters import ResultLines
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.trial.trial import Trial, TrialSpec
from tests.experiment.progress.screens import Clock


def result_lines(verbose: int) -> list[str]:
    """The messages about a trial with three reports in half a second, and one a second later."""
    told: list[str] = []
    clock = Clock()
    registry = Views(
        Surroundings(
            trainable_name="train",
            experiment_path="p",
            local_experiment_path="l",
            config_of=lambda spec: spec.config,
            row_of=lambda trial: {
                **(trial.row or {}),
                "training_iteration": trial.iteration,
                "time_total_s": trial.time_total_s,
            },
            checkpoint_of=lambda spec, record: Checkpoint("/c"),
        )
    )
    spec = TrialSpec(
        trial_id="aaaaa_00000",
        index=0,
        name="train_aaaaa_00000",
        dirname="d",
        config={"lr": 0.5},
        tag="0_lr=0.5",
    )
    lines = ResultLines(verbose, lambda text, level: told.append(f"{level} {text}"), clock=clock)
    for iteration, passed_s in ((1, 0.0), (2, 0.25), (3, 0.25), (4, 1.0)):
        clock.now += passed_s
        row = {"acc": 0.25 * iteration, "note": "x", "net": {"norm": 2}, "pid": 7, "config": {}}
        view = registry.show(
            Trial(spec=spec, row=row, iteration=iteration, time_total_s=80.0 + iteration)
        )
        about: dict[str, Any] = {"iteration": 9, "trials": registry.trials, "trial": view}
        if iteration == 1:
            lines.on_trial_start(**about)
        lines.on_trial_result(**about, result=view.last_result)
    lines.on_trial_complete(**about)
    return told


START = "info train_aaaaa_00000 started lr=0.5"
END = "info train_aaaaa_00000 finished at iteration 4 after 1m 24s acc=1"


def test_verbose_2_tells_of_starts_and_ends_and_of_results_in_brief() -> None:
    assert result_lines(2) == [
        START,
        "info train_aaaaa_00000 iteration 1 after 1m 21s acc=0.25",
        "info train_aaaaa_00000 iteration 4 after 1m 24s acc=1",
        END,
    ]


def test_verbose_3_tells_all_of_each_result() -> None:
    start, *results, end = result_lines(3)
    assert (start, end) == (START, END)
    assert len(results) == 4
    assert results[2].splitlines() == [
        "info train_aaaaa_00000 iteration 3 after 1m 23s",
        *("  acc: 0.75", "  net/norm: 2", "  note: x", "  pid: 7"),
    ]
