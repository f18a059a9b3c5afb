"""Why trials do not run any more, in words and sentences."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from holdfast.experiment.progress.summarizer import Summarizer
from holdfast.experiment.progress.summary import RunFacts, Summary
from holdfast.experiment.progress.trial_table import table_of
from holdfast.experiment.progress.wording import best_text, closing_text, counts_text, hidden_text
from holdfast.scheduler.codec import snapshot
from holdfast.scheduler.events import EndOrdered, SearchEnded, Suggested
from holdfast.scheduler.machine import from_snapshot
from holdfast.scheduler.policies.asha import ASHAScheduler, MultiObjectiveASHAScheduler
from holdfast.scheduler.policies.hyperband import DEHBScheduler, HyperBandScheduler
from holdfast.scheduler.policies.median import MedianStoppingRule
from holdfast.scheduler.policies.pasha import PASHAScheduler
from holdfast.scheduler.policies.resource_changing import ResourceChangingScheduler
from holdfast.scheduler.policy import (
    TrialScheduler,
)
from holdfast.testing.rehearsal import Rehearsal, trial_spec
from holdfast.text.trials import (
    short_name,
    stop_reason,
    stop_sentence,
    stop_text,
)
from holdfast.trial.events import Returned
from holdfast.trial.trial import Status, Stop, StopReason

GOAL: dict[str, Any] = {"metric": "loss", "mode": "min"}


def running(count: int, policy: TrialScheduler | None = None, **spec: Any) -> Rehearsal:
    name = "" if policy is None else type(policy).__name__
    fields = {**GOAL, "scheduler": name, **spec}
    run = Rehearsal(capacity={"CPU": float(count)}, policy=policy, **fields)
    for index in range(count):
        run.suggest()
        run.start(f"t{index}")
    run.handle(SearchEnded())
    return run


def told(run: Rehearsal, trial_id: str, *, is_live: bool = True) -> tuple[str | None, str]:
    trial, spec = run.trial(trial_id), run.machine.spec
    reason = stop_reason(trial, is_live=is_live)
    return reason, stop_sentence(trial, spec.options, is_live=is_live)


def summary_of(run: Rehearsal, max_rows: int = 20) -> Summary:
    facts = RunFacts(name="run", path="/run", local_path="/run")
    return Summarizer(run.machine, max_rows=max_rows).summarize(facts=facts, now=run.now)


LOSSES = {"t0": 0.25, "t1": 0.5}


def driven(run: Rehearsal) -> Rehearsal:
    """Each trial reports its loss until it has ended."""
    while not run.machine.finished:
        for trial_id, loss in LOSSES.items():
            match run.trial(trial_id).status:
                case Status.STARTING:
                    run.start(trial_id)
                case Status.RUNNING:
                    run.report(trial_id, {"loss": loss, "size": loss}, checkpoint=True)
                case Status.STOPPING:
                    run.ends(trial_id)
                case Status.PAUSED if trial_id in run.machine.placement.holds:
                    run.exits(trial_id)
                case _:
                    pass
    return run


WORSE = "loss=0.5 at training_iteration=1 is worse than the cutoff, 0.25"


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        (ASHAScheduler(max_t=4, reduction_factor=2), f"ASHA stopped it at iteration 1: {WORSE}"),
        (
            HyperBandScheduler(max_t=2, reduction_factor=2),
            f"HyperBand stopped it at iteration 1: {WORSE}",
        ),
        (
            PASHAScheduler(max_t=4, reduction_factor=2),
            f"PASHA stopped it at iteration 1: {WORSE}",
        ),
        (
            ResourceChangingScheduler(ASHAScheduler(max_t=4, reduction_factor=2)),
            f"ASHA stopped it at iteration 1: {WORSE}",
        ),
        (
            MedianStoppingRule("training_iteration", grace_period=1, min_samples_required=1),
            "median stopped it at iteration 1: its best loss=0.5 at training_iteration=1 is worse "
            "than loss=0.25, the median of 1 other trial",
        ),
        (
            MultiObjectiveASHAScheduler(["loss", "size"], ["min", "min"], reduction_factor=2),
            "MO-ASHA stopped it at iteration 1: loss=0.5, size=0.5 at training_iteration=1 is not "
            "among the best 1 in 2",
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, TrialScheduler) else "",
)
def test_each_scheduler_says_why_it_stopped_a_trial_early(
    policy: TrialScheduler, why: str
) -> None:
    run = driven(running(2, policy, stop={"training_iteration": 6}))
    assert told(run, "t0")[0] == "finished"
    assert told(run, "t1") == ("pruned", why)
    for machine in (run.folded(), from_snapshot(snapshot(run.machine))):  # as readers see it
        assert stop_sentence(machine.trials["t1"], machine.spec.options, is_live=False) == why


@pytest.mark.parametrize(
    "policy",
    [
        ASHAScheduler(max_t=2, reduction_factor=2),
        HyperBandScheduler(max_t=2, reduction_factor=2),
        PASHAScheduler(max_t=2, reduction_factor=2),
        MultiObjectiveASHAScheduler(["loss", "size"], ["min", "min"], max_t=2, reduction_factor=2),
    ],
    ids=lambda policy: type(policy).__name__,
)
def test_a_trial_at_max_t_has_finished(policy: TrialScheduler) -> None:
    run = driven(running(2, policy))
    assert told(run, "t0") == (
        "finished",
        "it finished at iteration 2: training_iteration reached max_t=2",
    )


def test_a_trial_of_dehb_has_finished_when_its_budget_is_used_up() -> None:
    run = Rehearsal(policy=DEHBScheduler(), scheduler="DEHBScheduler", **GOAL)
    config = {"dehb": {"budget": 1}}
    run.handle(Suggested(spec=replace(trial_spec(0), config=config)))
    run.start("t0")
    run.report("t0", {"loss": 0.5})
    run.ends("t0")
    why = "it finished at iteration 1: training_iteration reached its budget, 1"
    assert told(run, "t0") == ("finished", why)


def test_the_table_and_the_counts_have_the_word_of_the_stop_reason() -> None:
    run = driven(running(2, ASHAScheduler(max_t=4, reduction_factor=2)))
    summary = summary_of(run)
    cells = {line[0]: line[1] for line in table_of(summary)[1]}
    assert cells == {"train_t0": "finished", "train_t1": "pruned"}
    assert counts_text(summary) == "2 trials: 1 finished, 1 pruned"
    assert closing_text(summary).endswith(": 1 finished, 1 pruned")
    assert hidden_text(summary_of(run, 1)) == "1 more: 1 pruned"
    assert [stop_text(one.stop) for one in run.machine.trials.values()] == [
        "finished",
        "pruned by ASHA",
    ]
    assert stop_text(Stop(reason=StopReason.BUDGET)) == "stopped by budget"


def test_a_best_trial_that_was_stopped_early_says_so_in_the_best_line() -> None:
    run = running(2, stop={"training_iteration": 2})
    run.report("t0", {"loss": 0.25})
    run.handle(Returned(trial_id="t0", attempt=1, pruned=True))
    run.exits("t0")
    run.report("t1", {"loss": 0.5})
    sentence = "TrialPruned stopped it at iteration 1: its function raised it"
    assert told(run, "t0") == ("pruned", sentence)
    assert best_text(summary_of(run)) == "loss=0.25 train_t0 (pruned at iteration 1): lr=1"
    run.report("t1", {"loss": 0.125})
    run.ends("t1")
    assert best_text(summary_of(run)) == "loss=0.125 train_t1 at iteration 2: lr=0.5"


def test_the_table_of_a_run_that_was_interrupted_says_which_trials_were() -> None:
    run = running(2)
    run.suggest()
    run.report("t0", {"loss": 0.5})
    run.handle(EndOrdered(reason="interrupt", message="interrupted"))
    for trial_id in ("t0", "t1"):
        run.exits(trial_id)
    summary = summary_of(run)
    cells = {line[0]: line[1] for line in table_of(summary)[1]}
    assert cells == {"train_t0": "interrupted", "train_t1": "interrupted", "train_t2": "queued"}
    assert closing_text(summary).endswith(": 2 interrupted, 1 queued")


def test_the_names_of_schedulers_are_short() -> None:
    names = ("ASHAScheduler", "HyperBandForBOHB", "PB2", "Mine", "Scheduler")
    assert [short_name(name) for name in names] == ["ASHA", "BOHB", "PB2", "Mine", "Scheduler"]
