"""Runs with a scheduler that has the methods that Ray calls."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.trial.errors import InvalidConfig, TuneError
from holdfast.tune.schedulers import FIFOScheduler, TrialScheduler

Grid = dict[str, Any]
GRID: Grid = {"x": tune.grid_search([1, 2, 3])}


class Counting(tune.Trainable):
    """Its state is how far it has come, which only a checkpoint keeps."""

    def setup(self, config: dict[str, Any]) -> None:
        self.at = 0

    def step(self) -> dict[str, Any]:
        self.at += 1
        return {"loss": self.config["x"] / self.at, "deep": {"at": self.at}, "done": self.at == 3}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        Path(checkpoint_dir, "at").write_text(str(self.at))

    def load_checkpoint(self, checkpoint_dir: str) -> None:
        self.at = int(Path(checkpoint_dir, "at").read_text())


class Witness(FIFOScheduler):
    """Writes down its calls; stops x=3 at its second result, and pauses the others once."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, ...]] = []
        self.paused: set[str] = set()

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        self.calls.append(("goal", metric, mode))
        return super().set_search_properties(metric, mode, **spec)

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        self.calls.append(("add", trial.config["x"], trial.evaluated_params, trial.experiment_tag))

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        assert tune_controller.get_trial(trial.trial_id) is trial
        assert trial in tune_controller.get_live_trials()
        assert trial.last_result["deep"]["at"] == result["deep/at"]
        self.calls.append(("result", trial.config["x"], result["deep/at"], result["loss"]))
        if trial.config["x"] == 3:
            return self.STOP if result["deep/at"] == 2 else TrialScheduler.CONTINUE
        if trial.trial_id in self.paused:
            return TrialScheduler.CONTINUE
        self.paused.add(trial.trial_id)
        return TrialScheduler.PAUSE

    def on_trial_complete(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> None:
        self.calls.append(("complete", trial.config["x"], result["deep/at"], result["done"]))

    def debug_string(self) -> str:
        return f"{len(self.paused)} trials have paused"


def test_its_methods_are_called_as_ray_calls_them(
    fit: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    witness = Witness()
    results = fit(
        Counting,
        GRID,
        tune.TuneConfig(metric="loss", mode="min", scheduler=witness, max_concurrent_trials=1),
        verbose=1,
    )
    assert [one for one in witness.calls if one[0] == "add"] == [
        ("add", x, {"x": x}, f"{x - 1}_x={x}") for x in (1, 2, 3)
    ]
    assert [one for one in witness.calls if one[0] != "add"] == [
        ("goal", "loss", "min"),
        ("result", 1, 1, 1.0),
        ("result", 2, 1, 2.0),
        ("result", 3, 1, 3.0),
        ("result", 3, 2, 1.5),
        ("complete", 3, 2, True),
        # Both resume from the checkpoints of their pauses.
        ("result", 1, 2, 0.5),
        ("complete", 1, 3, True),
        ("result", 2, 2, 1.0),
        ("complete", 2, 3, True),
    ]
    assert [result.metrics["deep"]["at"] for result in results] == [3, 3, 2]
    assert results[2].why == "Witness stopped it at iteration 2"
    assert "Witness: 2 trials have paused" in capsys.readouterr().err


def endless(config: dict[str, Any]) -> None:
    while True:
        tune.report({"loss": config["x"]})


# Classes of this module are pickled with what they refer to: they find the event by its name.
started = threading.Event()


class Slow(FIFOScheduler):
    """Decides about x=1 only once x=2 has started."""

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        if trial.config["x"] == 1:
            assert sys.modules[__name__].started.wait(60)
        return self.STOP


class TellsStarts(tune.Callback):
    def on_trial_start(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        if trial.config["x"] == 2:
            sys.modules[__name__].started.set()


class SecondOnReport(tune.search.Searcher):
    """Suggests the second trial when the first has reported."""

    has_report = False

    def suggest(self, trial_id: str) -> Any:
        number = int(trial_id[-1]) + 1
        return {"x": number} if number == 1 or self.has_report else None

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        self.has_report = True

    def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
        pass


def test_while_it_decides_the_run_continues(fit: Any) -> None:
    config = tune.TuneConfig(search_alg=SecondOnReport(), scheduler=Slow(), num_samples=2)
    results = fit(endless, {}, config, callbacks=[TellsStarts()])
    assert [one.metrics["training_iteration"] for one in results] == [1, 1]


def test_an_error_in_it_ends_the_run_which_a_restore_continues(tmp_path: Path) -> None:
    class Breaks(FIFOScheduler):
        def on_trial_result(self, controller: Any, trial: Any, result: dict[str, Any]) -> str:
            if not (tmp_path / "mended").exists():
                raise KeyError("margin")
            return self.STOP

    tuner = tune.Tuner(
        endless,
        param_space={"x": 1},
        tune_config=tune.TuneConfig(scheduler=Breaks()),
        run_config=tune.RunConfig(storage_path=str(tmp_path), name="run", verbose=0),
    )
    with pytest.raises(KeyError, match="margin"):
        tuner.fit()
    (tmp_path / "mended").touch()
    (result,) = tune.Tuner.restore(str(tmp_path / "run"), endless).fit()
    assert result.metrics is not None
    assert result.metrics["training_iteration"] == 1
    assert result.why == "Breaks stopped it at iteration 1"


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (None, "Mute.on_trial_result.. must return TrialScheduler.CONTINUE, .*, not None"),
        ("continue", "not 'continue'"),
    ],
)
def test_another_answer_ends_the_run_and_says_what_to_return(
    fit: Any, returned: Any, message: str
) -> None:
    class Mute(FIFOScheduler):
        def on_trial_result(self, controller: Any, trial: Any, result: dict[str, Any]) -> Any:
            return returned

    with pytest.raises(TuneError, match=message):
        fit(endless, {"x": 1}, tune.TuneConfig(scheduler=Mute()))


def test_a_goal_that_it_has_already_is_refused_before_the_first_trial(fit: Any) -> None:
    class Own(Witness):
        def __init__(self) -> None:
            super().__init__()
            self._metric = "speed"

    config = tune.TuneConfig(metric="loss", mode="min", scheduler=Own())
    with pytest.raises(InvalidConfig, match=r"Own.set_search_properties.*returned False"):
        fit(Counting, GRID, config)
