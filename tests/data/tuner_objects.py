"""Objects of holdfast as users make them: what a tuner.pkl of any format must give back.

python tests/data/tuner_objects.py tests/data/tuner-2 objects
python tests/data/tuner_objects.py tests/data/watching-2 watchers
"""

from __future__ import annotations

import datetime
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast import tune
from holdfast.air.integrations.comet import CometLoggerCallback
from holdfast.air.integrations.mlflow import MLflowLoggerCallback
from holdfast.air.integrations.wandb import WandbLoggerCallback
from holdfast.tune import logger, schedulers, search, stopper

SECRET = "hunter2"
POLICY = '["t0", "t1", 1, 2, {"lr": 0.1}, {"lr": 0.2}]\n'


def train(config: Mapping[str, Any]) -> None:
    tune.report({"loss": config["lr"]})


def explored(config: dict[str, Any]) -> dict[str, Any]:
    return {**config, "explored": True}


def never(trial_id: str, result: Mapping[str, Any]) -> bool:
    return False


def halved(spec: Any) -> float:
    return float(spec.config.lr) / 2


class Thing:
    """A value of the user's own."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Thing) and other.size == self.size

    __hash__ = None  # type: ignore[assignment]


THING = Thing(3)


def space() -> dict[str, Any]:
    return {
        "lr": tune.loguniform(1e-4, 1e-1),
        "momentum": tune.quniform(0.5, 0.9, 0.1),
        "noise": tune.randn(0.0, 2.0),
        "step": tune.qrandn(1.0, 2.0, 0.5),
        "layers": tune.randint(1, 9),
        "width": tune.qlograndint(2, 64, 2),
        "activation": tune.choice(["relu", "tanh", {"leaky": tune.uniform(0, 1)}]),
        "half": tune.sample_from(halved),
        "batch": tune.grid_search([16, 32]),
        "shape": (3, 4),
        "nested": {"thing": THING, "names": ["a", "b"], 7: b"seven"},
    }


def replay() -> schedulers.PopulationBasedTrainingReplay:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "pbt_policy_t0.txt")
        path.write_text(POLICY)
        return schedulers.PopulationBasedTrainingReplay(path)


def policies() -> dict[str, Any]:
    goal: Any = {"metric": "loss", "mode": "min"}
    top = schedulers.DistributeResourcesToTopJob(increase_by={"CPU": 2}, **goal)
    found = [
        schedulers.FIFOScheduler(),
        schedulers.ASHAScheduler(**goal, max_t=81, grace_period=3, reduction_factor=3, brackets=2),
        schedulers.MedianStoppingRule("time_total_s", **goal, grace_period=5, hard_stop=False),
        schedulers.HyperBandScheduler(**goal, max_t=27),
        schedulers.HyperBandForBOHB(**goal, max_t=27),
        schedulers.DEHBScheduler(**goal),
        schedulers.PASHAScheduler(**goal, max_t=64),
        schedulers.MultiObjectiveASHAScheduler(["loss", "size"], ["min", "max"], max_t=9),
        schedulers.PopulationBasedTraining(
            **goal,
            perturbation_interval=3,
            hyperparam_mutations={"lr": tune.uniform(0, 1), "width": [1, 2, 4]},
            custom_explore_fn=explored,
        ),
        schedulers.PB2(**goal, hyperparam_bounds={"lr": [1e-4, 1e-1]}, synch=True),
        schedulers.ResourceChangingScheduler(schedulers.ASHAScheduler(**goal, max_t=9), top),
        replay(),
    ]
    return {type(one).__name__: one for one in found}


def searches() -> dict[str, Any]:
    dehb = search.DEHBSearch(metric="loss", mode="min", max_t=27, seed=3)
    found = [
        search.BasicVariantGenerator([{"lr": 0.1}], max_concurrent=2, random_state=7),
        dehb,
        search.ConcurrencyLimiter(search.DEHBSearch(max_t=9), 3, batch=True),
        search.Repeater(search.DEHBSearch(max_t=9), repeat=2, set_index=False),
    ]
    return {type(one).__name__: one for one in found}


def stoppers() -> dict[str, Any]:
    plateau = stopper.TrialPlateauStopper("loss", std=0.5, metric_threshold=0.1, mode="min")
    bound = stopper.MaximumIterationStopper(5)
    found = [
        stopper.NoopStopper(),
        bound,
        stopper.TimeoutStopper(datetime.timedelta(minutes=2)),
        plateau,
        stopper.ExperimentPlateauStopper("loss", top=3, patience=2),
        stopper.FunctionStopper(never),
        stopper.CombinedStopper(bound, plateau, stopper.FunctionStopper(never)),
    ]
    return {type(one).__name__: one for one in found}


def objects() -> dict[str, Any]:
    """By field of the file."""
    kinds = {"scheduler": policies(), "search_alg": searches(), "stop": stoppers()}
    return {
        "trainable": train,
        "param_space": space(),
        "missing": ["callback Quiet"],
        **{f"{kind} {name}": one for kind, each in kinds.items() for name, one in each.items()},
    }


def reporters() -> list[Any]:
    terminal = tune.CLIReporter(
        metric_columns={"loss": "the loss"}, metric="loss", mode="min", sort_by_metric=True
    )
    terminal.add_metric_column("accuracy", "acc")
    terminal.add_parameter_column("lr")
    return [terminal, tune.JupyterNotebookReporter(overwrite=False, max_progress_rows=3)]


def trackers() -> list[Any]:
    return [
        MLflowLoggerCallback(
            f"http://me:{SECRET}@tracks.example:5000",
            experiment_name="kelp",
            tags={"team": "sea"},
            tracking_token=SECRET,
            save_artifact=True,
        ),
        WandbLoggerCallback(
            "kelp", "group", None, SECRET, excludes=["noise"], log_config=True, mode="offline"
        ),
        CometLoggerCallback(False, ["sea"], api_key=SECRET, project_name="kelp"),
    ]


def watchers() -> dict[str, Any]:
    """By field of watching-2/tuner.pkl."""
    loggers = [
        logger.JsonLoggerCallback(),
        logger.CSVLoggerCallback(),
        logger.TBXLoggerCallback(),
    ]
    return {type(one).__name__: one for one in [*loggers, *trackers(), *reporters()]}


def main() -> None:
    from holdfast.experiment.user_objects.stored_objects import stored
    from holdfast.experiment.user_objects.tuner_file import write

    folder, which = Path(sys.argv[1]), {"objects": objects, "watchers": watchers}[sys.argv[2]]
    folder.mkdir()
    write(folder / "tuner.pkl", {name: stored(one, name) for name, one in which().items()})


if __name__ == "__main__":
    from tests.data import tuner_objects  # so that pickles name the module

    tuner_objects.main()
