"""A restore with trusted=False: nothing in the experiment's folder is unpickled."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from holdfast import train, tune
from holdfast.cli import main
from holdfast.experiment.user_objects.stored_objects import StoredField
from holdfast.experiment.user_objects.tuner_file import NotTrusted, read, write
from holdfast.scheduler.policy import Decision, Observation, TrialScheduler, View
from holdfast.trial.errors import InvalidConfig
from holdfast.tune.schedulers import ASHAScheduler
from holdfast.tune.stopper import TrialPlateauStopper

pytestmark = pytest.mark.process

SPACE = {"n": tune.grid_search([1, 2]), "lr": tune.uniform(0, 1)}


class Trap:
    """Unpickling it creates the file."""

    def __init__(self, canary: str) -> None:
        self.canary = canary

    def __reduce__(self) -> Any:
        return Path.touch, (Path(self.canary),)


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    return tmp_path / "canary"


def stumbles(config: dict[str, Any]) -> None:
    """Fails in its first attempt, so that there is something to resume."""
    tune.report({"loss": config["n"]})
    if tune.get_context().get_attempt() == 1:
        raise RuntimeError("a stumble")
    tune.report({"loss": config["n"], "ended": 1})


class Keeps(tune.Callback):
    """A callback whose state is such a trap."""

    def __init__(self, canary: str) -> None:
        self.canary = canary
        self.given: list[Any] = []

    def get_state(self) -> dict[str, Any]:
        return {"trap": Trap(self.canary)}

    def set_state(self, state: dict[str, Any]) -> None:
        self.given.append(state)


def set_traps(path: str, canary: Path) -> None:
    """Replace every pickle there by one that creates the file."""
    trap = cloudpickle.dumps(Trap(str(canary)))
    for name in ("tuner.pkl", "trainer.pkl"):
        file = Path(path, name)
        if file.exists():
            fields = read(file.read_bytes())
            write(
                file,
                {
                    name: field if field.objects is None else StoredField(pickled=trap)
                    for name, field in fields.items()
                },
            )
    canary.unlink(missing_ok=True)


def ended(results: tune.ResultGrid) -> list[Any]:
    return [(result.metrics or {}).get("ended") for result in results]


def test_nothing_is_unpickled_by_whoever_reads_or_resumes(
    fit: Any, canary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    callback = Keeps(str(canary))
    path = fit(stumbles, SPACE, callbacks=[callback]).experiment_path
    assert Path(path, "callbacks.msgpack").exists()
    set_traps(path, canary)
    analysis = tune.ExperimentAnalysis(path)
    assert len(analysis.results) == 2
    assert tune.Result.from_path(analysis.trials[0].local_path).error is not None
    trial_id = analysis.trials[0].trial_id
    for command in (
        ["show", path, "--json"],
        ["ls", str(Path(path).parent)],
        ["best", path, "--metric", "loss", "--mode", "min"],
        ["logs", path, trial_id],
        ["export", path, "--format", "csv", "--output", str(canary.with_name("rows"))],
        ["doctor", "verify", path],
        ["doctor", "repair", path],
        ["doctor", "gc", path],
    ):
        assert main(command) in (0, 1), command
    run = tune.RunConfig(callbacks=[callback])
    tuner = tune.Tuner.restore(path, stumbles, resume_errored=True, trusted=False, run_config=run)
    assert len(tuner.get_results()) == 2
    assert ended(tuner.fit()) == [1, 1]
    assert callback.given == []
    assert not canary.exists()
    with pytest.raises(Exception, match=r"Trap|trainable"):
        tune.Tuner.restore(path).fit()
    assert canary.exists()  # the trap works


def test_what_is_pickled_has_to_be_given_and_is_named(fit: Any, canary: Path) -> None:
    space = {**SPACE, "trap": Trap(str(canary))}
    config = tune.TuneConfig(metric="loss", mode="min", scheduler=Own())
    stop = never
    path = fit(stumbles, space, config, stop=stop).experiment_path
    canary.unlink()
    needed = r"trainable, param_space, stop, scheduler in .*tuner\.pkl are pickled: .* Pass the "
    with pytest.raises(NotTrusted, match=needed) as caught:
        tune.Tuner.restore(path, trusted=False)
    assert "param_space= and run_config= and tune_config=" in str(caught.value)
    with pytest.raises(NotTrusted, match=r"stop, scheduler in"):
        tune.Tuner.restore(path, stumbles, param_space=space, trusted=False)
    run = tune.RunConfig(stop=stop)
    with pytest.raises(NotTrusted, match=r"^scheduler in .* is pickled.*Pass tune_config="):
        tune.Tuner.restore(path, stumbles, param_space=space, run_config=run, trusted=False)
    for others, told in (
        (tune.TuneConfig(scheduler=ASHAScheduler()), "scheduler: was Own, now ASHAScheduler"),
        (tune.TuneConfig(), "scheduler: was Own, now"),
    ):
        with pytest.raises(InvalidConfig, match=told):
            tune.Tuner.restore(
                path,
                stumbles,
                param_space=space,
                run_config=run,
                tune_config=others,
                trusted=False,
            )
    assert not canary.exists()
    tuner = tune.Tuner.restore(
        path,
        stumbles,
        resume_errored=True,
        param_space={**space, "trap": type("Trap", (), {})()},
        run_config=run,
        tune_config=config,
        trusted=False,
    )
    assert ended(tuner.fit()) == [1, 1]
    assert not canary.exists()


def never(trial_id: str, result: dict[str, Any]) -> bool:
    return False


class Own(TrialScheduler):
    def decide(self, view: View, event: Observation) -> Sequence[Decision]:
        return ()


def test_what_is_plain_need_not_be_given(fit: Any, canary: Path) -> None:
    config = tune.TuneConfig(
        metric="loss", mode="min", scheduler=ASHAScheduler(max_t=9, grace_period=5)
    )
    stop = TrialPlateauStopper("loss", num_results=3)
    path = fit(stumbles, SPACE, config, stop=stop).experiment_path
    set_traps(path, canary)
    configs = [result.config for result in tune.Tuner.restore(path, stumbles).get_results()]
    tuner = tune.Tuner.restore(path, stumbles, resume_errored=True, trusted=False)
    results = tuner.fit()
    assert ended(results) == [1, 1]
    assert [result.config for result in results] == configs
    assert not canary.exists()


def test_a_shell_resumes_without_trust(
    fit: Any, canary: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = fit(stumbles, SPACE).experiment_path
    set_traps(path, canary)
    assert main(["resume", "--untrusted", path]) != 0
    assert "trainable in" in capsys.readouterr().err
    given = ["--untrusted", "--trainable", f"{__name__}:stumbles", "--resume-errored"]
    assert main(["resume", *given, path]) == 0
    assert not canary.exists()


def made_here(config: Any) -> Trap:
    return Trap(os.environ["CANARY_OF_A_TEST"])


def test_pickled_values_in_the_journal_are_refused_before_anything_runs(
    fit: Any, canary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY_OF_A_TEST", str(canary))
    space = {**SPACE, "trap": tune.sample_from(made_here)}
    path = fit(stumbles, space).experiment_path
    canary.unlink()
    tuner = tune.Tuner.restore(
        path, stumbles, resume_errored=True, param_space=space, trusted=False
    )
    [first, _] = tuner.get_results()
    assert repr((first.config or {})["trap"]).startswith("<trap: a stored Trap")
    with pytest.raises(NotTrusted, match=r"configs of .*_00000, .*_00001 hold values that are p"):
        tuner.fit()
    assert not canary.exists()
    # If nothing resumes, they are not needed.
    tuner = tune.Tuner.restore(path, stumbles, param_space=space, trusted=False)
    [first, _] = tuner.fit()
    assert repr((first.config or {})["trap"]).startswith("<trap: a stored Trap")
    assert not canary.exists()


def test_values_that_are_made_after_the_restore_are_given(
    fit: Any, canary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY_OF_A_TEST", str(canary))
    path = fit(stumbles, {"n": tune.sample_from(numbered)}).experiment_path
    space = {"n": tune.sample_from(numbered)}
    tuner = tune.Tuner.restore(
        path,
        stumbles,
        resume_errored=True,
        param_space=space,
        trusted=False,
        num_samples=2,
        extend=True,
    )
    assert ended(tuner.fit())[0] == 1


def numbered(config: Any) -> int:
    return 1


class InADict(tune.Trainable):
    """A trainable whose state is a dict with a trap in it."""

    def setup(self, config: dict[str, Any]) -> None:
        self.canary = config["canary"]
        self.value = 0

    def step(self) -> dict[str, Any]:
        self.value += 1
        if self.value == 2 and tune.get_context().get_attempt() == 1:
            raise RuntimeError("a stumble")
        return {"value": self.value, "done": self.value == 3}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        return {"value": self.value, "trap": Trap(self.canary)}

    def load_checkpoint(self, checkpoint: Any) -> None:
        self.value = checkpoint["value"]


def test_a_checkpoint_that_is_a_pickle_is_not_loaded(fit: Any, canary: Path) -> None:
    kept = tune.CheckpointConfig(checkpoint_frequency=1)
    path = fit(InADict, {"canary": str(canary)}, checkpoint_config=kept).experiment_path
    canary.unlink(missing_ok=True)
    [result] = tune.Tuner.restore(path, InADict, resume_errored=True, trusted=False).fit()
    assert "holds a pickled dict, but trusted=False unpickles nothing" in str(result.error)
    assert not canary.exists()
    [result] = tune.Tuner.restore(path, InADict, resume_errored=True).fit()
    assert result.error is None
    assert canary.exists()


def test_one_script_for_start_and_restart_can_do_without_trust(
    tmp_path: Path, canary: Path
) -> None:
    def tuner() -> tune.Tuner:
        return tune.Tuner(
            stumbles,
            param_space={**SPACE, "scale": tune.sample_from(numbered)},
            tune_config=tune.TuneConfig(metric="loss", mode="min", scheduler=Own()),
            run_config=tune.RunConfig(
                storage_path=str(tmp_path), name="run", verbose=0, stop=never
            ),
        )

    results = tuner().fit()
    set_traps(results.experiment_path, canary)
    wishes = tune.ResumeConfig(errored="resume")
    results = tuner().fit(resume="must", resume_config=wishes, trusted=False)
    assert ended(results) == [1, 1]
    assert not canary.exists()


def loop(config: dict[str, Any]) -> None:
    train.report({"n": 1})


def stumbling_loop(config: dict[str, Any]) -> None:
    train.report({"n": config["of"].n})
    if tune.get_context().get_attempt() == 1:
        raise RuntimeError("a stumble")
    train.report({"n": config["of"].n, "ended": 1})


class Plainly:
    """A user's object in a config, which is pickled."""

    def __init__(self, n: int) -> None:
        self.n = n


@pytest.mark.parametrize("how", ["restore", "fit"])
def test_a_training_resumes_without_trust_where_the_trainer_is_given(
    tmp_path: Path, canary: Path, how: str
) -> None:
    from holdfast.train import DataParallelTrainer

    def made(scale: int = 2) -> DataParallelTrainer:
        return DataParallelTrainer(
            stumbling_loop,
            train_loop_config={"of": Plainly(5)},
            scaling_config=train.ScalingConfig(num_workers=scale),
            run_config=train.RunConfig(storage_path=str(tmp_path), name="run", verbose=0),
        )

    with pytest.raises(train.TrainingFailedError):
        made().fit()
    path = str(tmp_path / "run")
    set_traps(path, canary)
    with pytest.raises(NotTrusted, match=r"Pass trainer=, made as the one that began it"):
        DataParallelTrainer.restore(path, trusted=False)
    if how == "restore":
        restored = DataParallelTrainer.restore(path, trusted=False, trainer=made())
        result = restored.fit()
    else:
        result = made().fit(resume="must", trusted=False)
    assert result.metrics is not None
    assert (result.metrics["n"], result.metrics["ended"]) == (5, 1)
    assert not canary.exists()


def test_a_trainer_is_refused_where_it_means_nothing(tmp_path: Path) -> None:
    from holdfast.train import DataParallelTrainer

    trainer = DataParallelTrainer(loop)
    with pytest.raises(InvalidConfig, match=r"trainer is for restore\(\.\.\., trusted=False"):
        DataParallelTrainer.restore("/no/such", trainer=trainer)
    with pytest.raises(InvalidConfig, match="not 3"):
        DataParallelTrainer.restore("/no/such", trusted=False, trainer=3)  # type: ignore[arg-type]


def test_settings_of_a_restore_without_trust_are_refused_where_they_mean_nothing() -> None:
    for given in ({"tune_config": tune.TuneConfig()}, {"run_config": tune.RunConfig()}):
        with pytest.raises(InvalidConfig, match=r"_config is for restore\(\.\.\., trusted=False"):
            tune.Tuner.restore("/no/such", **given)
    with pytest.raises(InvalidConfig, match="run_config must be a RunConfig, not 3"):
        tune.Tuner.restore("/no/such", trusted=False, run_config=3)  # type: ignore[arg-type]
