"""A subclass of Trainable: its methods, its checkpoints, and one process for several trials."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import tune
from holdfast.experiment.worker.trainables import PROGRESS_FILE
from holdfast.trial.config import ResumeConfig
from holdfast.trial.errors import InvalidConfig, TuneError
from holdfast.tune.utils import validate_save_restore


class Diary(tune.Trainable):
    """Records the calls of its methods in the file that the config names."""

    def setup(self, config: dict[str, Any]) -> None:
        self.value = 0
        self.note("setup")

    def note(self, text: str) -> None:
        with open(self.config["diary"], "a") as diary:
            diary.write(f"{text}\n")

    def step(self) -> dict[str, Any]:
        self.value += 1
        self.note(f"step {self.value}")
        return {"value": self.value}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any] | None:
        Path(checkpoint_dir, "value.txt").write_text(str(self.value))
        return None

    def load_checkpoint(self, checkpoint: Any) -> None:
        self.value = int(Path(checkpoint, "value.txt").read_text())
        self.note(f"load {self.value} after iteration {self.iteration}")

    def cleanup(self) -> None:
        self.note("cleanup")


@pytest.fixture
def diary(tmp_path: Path) -> Path:
    return tmp_path / "diary"


def values_in(result: tune.Result) -> list[int]:
    folders = sorted(Path(result.path).glob("checkpoint_*"))
    return [int((folder / "value.txt").read_text()) for folder in folders]


def test_rows_before_a_checkpoint_made_at_the_end_stay_when_the_trial_continues(fit: Any) -> None:
    class Counts(tune.Trainable):
        def setup(self, config: dict[str, Any]) -> None:
            self.n = 0

        def step(self) -> dict[str, Any]:
            self.n += 1
            return {"n": self.n, "done": self.n % 3 == 0}

        def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
            return {"n": self.n}

        def load_checkpoint(self, checkpoint: Any) -> None:
            self.n = checkpoint["n"]

    config = tune.CheckpointConfig(checkpoint_at_end=True)

    def stop(trial_id: str, result: dict[str, Any]) -> bool:
        return bool(result["n"] % 2 == 0)

    results = fit(Counts, checkpoint_config=config, stop=stop)
    resume = ResumeConfig(finished="resume")
    tuner = tune.Tuner.restore(results.experiment_path, Counts, resume_config=resume)
    rows = tuner.fit()[0].metrics_dataframe
    assert rows is not None
    assert list(rows["training_iteration"]) == [1, 2, 3]


def test_it_is_set_up_stepped_to_its_bound_saved_on_the_way_and_at_its_end(
    fit: Any, diary: Path
) -> None:
    result = fit(
        Diary,
        {"diary": str(diary)},
        stop={"training_iteration": 5},
        checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=2, checkpoint_at_end=True),
    )[0]
    assert diary.read_text().splitlines() == [
        "setup",
        *(f"step {number}" for number in range(1, 6)),
        "cleanup",
    ]
    assert values_in(result) == [2, 4, 5]
    assert result.checkpoint is not None
    assert (result.metrics["training_iteration"], result.metrics["done"]) == (5, True)


def test_a_trial_that_is_ended_in_a_step_finishes_it_and_saves(
    fit: Any, diary: Path, tmp_path: Path
) -> None:
    in_step, ordered = tmp_path / "in-step", tmp_path / "ordered"
    os.mkfifo(in_step)
    os.mkfifo(ordered)

    class Waits(Diary):
        def step(self) -> dict[str, Any]:
            metrics = super().step()
            if not self.config["waits"]:
                in_step.read_text()
            elif self.value == 2:
                in_step.write_text("in the second step")
                ordered.read_text()
            return {**metrics, **self.config}

    class Tells(tune.Callback):
        def on_trial_complete(
            self, iteration: int, trials: list[Any], trial: Any, **info: Any
        ) -> None:
            if not trial.config["waits"]:
                ordered.write_text("the order to end is out")

    class StopsAll(tune.Stopper):
        def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
            self.ends = not result["waits"]
            return False

        def stop_all(self) -> bool:
            return self.ends

    holdfast.init(num_cpus=2)
    results = fit(
        Waits,
        {"diary": str(diary), "waits": tune.grid_search([True, False])},
        stop=StopsAll(),
        checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=True),
        callbacks=[Tells()],
    )
    assert results[0].metrics["value"] == 2
    assert values_in(results[0]) == [2]


def test_done_in_a_result_ends_the_trial_with_one_checkpoint_of_it(fit: Any, diary: Path) -> None:
    class UntilThree(Diary):
        def step(self) -> dict[str, Any]:
            return {**super().step(), "done": self.value == 3}

    config = tune.CheckpointConfig(checkpoint_frequency=3, checkpoint_at_end=True)
    result = fit(UntilThree, {"diary": str(diary)}, checkpoint_config=config)[0]
    assert values_in(result) == [3]
    assert result.metrics["value"] == 3


def test_a_failed_trial_resumes_from_the_files_that_it_saved(fit: Any, diary: Path) -> None:
    class FailsOnce(Diary):
        def step(self) -> dict[str, Any]:
            if self.value == 3 and "load" not in diary.read_text():
                raise RuntimeError("a stumble")
            return super().step()

    result = fit(
        FailsOnce,
        {"diary": str(diary)},
        stop={"training_iteration": 4},
        checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=2),
        failure_config=tune.FailureConfig(max_failures=1),
    )[0]
    lines = diary.read_text().splitlines()
    assert lines[lines.index("cleanup") + 1 :] == [
        "setup",
        "load 2 after iteration 2",
        "step 3",
        "step 4",
        "cleanup",
    ]
    assert result.error is None
    rows = [json.loads(line) for line in Path(result.path, "result.json").read_text().splitlines()]
    assert [(row["training_iteration"], row["value"]) for row in rows] == [
        (1, 1),
        (2, 2),
        (3, 3),
        (4, 4),
    ]


def test_a_dict_from_save_checkpoint_comes_back_as_that_dict(fit: Any, diary: Path) -> None:
    class Dicts(Diary):
        def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any] | None:
            return {"value": self.value, "rates": (0.1, 0.2)}

        def load_checkpoint(self, checkpoint: Any) -> None:
            assert checkpoint["rates"] == (0.1, 0.2)
            self.value = checkpoint["value"]
            self.note("loaded")

        def step(self) -> dict[str, Any]:
            if self.value == 1 and "loaded" not in diary.read_text():
                os._exit(1)
            return super().step()

    result = fit(
        Dicts,
        {"diary": str(diary)},
        stop={"training_iteration": 2},
        checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=1),
        failure_config=tune.FailureConfig(max_failures=1),
    )[0]
    assert result.error is None
    assert result.metrics["value"] == 2


# -- one process for several trials -------------------------------------------------------------


def test_with_reuse_actors_a_trainable_that_resets_serves_the_next_trial_in_its_process(
    fit: Any, diary: Path
) -> None:
    class Resets(Diary):
        def reset_config(self, new_config: dict[str, Any]) -> bool:
            self.value = 0
            self.note(f"reset {new_config['number']}")
            return True

        def step(self) -> dict[str, Any]:
            return {**super().step(), "number": self.config["number"]}

    results = fit(
        Resets,
        {"diary": str(diary), "number": tune.grid_search([1, 2, 3])},
        tune.TuneConfig(reuse_actors=True, max_concurrent_trials=1),
        stop={"training_iteration": 2},
    )
    assert len({result.metrics["pid"] for result in results}) == 1
    assert [result.metrics["number"] for result in results] == [1, 2, 3]
    assert [result.metrics["iterations_since_restore"] for result in results] == [2, 2, 2]
    calls = [line for line in diary.read_text().splitlines() if not line.startswith("step")]
    assert calls == ["setup", "reset 2", "reset 3", "cleanup"]


def test_with_reuse_actors_a_trainable_that_cannot_reset_gets_a_new_process(
    fit: Any, diary: Path
) -> None:
    results = fit(
        Diary,
        {"diary": str(diary), "number": tune.grid_search([1, 2])},
        tune.TuneConfig(reuse_actors=True, max_concurrent_trials=1),
        stop={"training_iteration": 1},
    )
    assert results.num_errors == 0
    assert len({result.metrics["pid"] for result in results}) == 2
    lines = diary.read_text().splitlines()
    assert lines == ["setup", "step 1", "cleanup", "setup", "step 1", "cleanup"]


def test_with_reuse_actors_a_trial_that_fails_leaves_no_one_waiting(
    fit: Any, diary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stumbles(Diary):
        def reset_config(self, new_config: dict[str, Any]) -> bool:
            return True

        def step(self) -> dict[str, Any]:
            if self.config["number"] == 1:
                raise RuntimeError("a stumble")
            return super().step()

    # If the failed trial's worker were kept, it would be killed after this, not before.
    monkeypatch.setenv("HOLDFAST_STOP_GRACE_S", "3600")
    results = fit(
        Stumbles,
        {"diary": str(diary), "number": tune.grid_search([1, 2])},
        tune.TuneConfig(reuse_actors=True, max_concurrent_trials=1),
        stop={"training_iteration": 1},
    )
    assert [result.error is None for result in results] == [False, True]
    assert diary.read_text().splitlines().count("cleanup") == 2


# -- resources, facts, mistakes -----------------------------------------------------------------


def test_the_class_says_what_each_config_asks_for(fit: Any, diary: Path) -> None:
    class Asks(Diary):
        @classmethod
        def default_resource_request(cls, config: dict[str, Any]) -> tune.PlacementGroupFactory:
            return tune.PlacementGroupFactory([{"CPU": config["cpus"]}])

        def step(self) -> dict[str, Any]:
            return {
                "cpus": self.trial_resources.required_resources["CPU"],
                "here": self.logdir == tune.get_context().get_trial_dir(),
                "id": self.trial_id,
                "done": True,
            }

    results = fit(Asks, {"diary": str(diary), "cpus": tune.grid_search([1, 2])})
    assert [result.metrics["cpus"] for result in results] == [1, 2]
    assert all(result.metrics["here"] for result in results)
    assert all(result.metrics["id"] == result.metrics["trial_id"] for result in results)


class Broken(tune.Trainable):
    def setup(self, config: dict[str, Any]) -> None:
        if config["case"] == "setup":
            raise ValueError("no data here")

    def step(self) -> dict[str, Any]:
        if self.config["case"] == "no dict":
            return 3  # type: ignore[return-value]
        return {"a": 1, "done": True}


@pytest.fixture(scope="module")
def broken(shared_fit: Any) -> dict[str, tune.Result]:
    results = shared_fit(
        Broken,
        {"case": tune.grid_search(["setup", "no dict"])},
    )
    return {result.config["case"]: result for result in results}


@pytest.mark.parametrize(
    ("case", "named"),
    [
        ("setup", "no data here"),
        ("no dict", r"Broken.step\(\) must return a dict of metrics, not 3"),
    ],
)
def test_a_mistake_in_the_class_fails_the_trial_and_is_named(
    broken: dict[str, tune.Result], case: str, named: str
) -> None:
    error = broken[case].error
    assert error is not None
    with pytest.raises(tune.TrialError, match=named):
        raise error


def test_the_first_frame_of_an_error_is_the_users_own(broken: dict[str, tune.Result]) -> None:
    error = broken["setup"].error
    assert isinstance(error, tune.TrialError)
    frames = [line for line in error.failure.traceback.splitlines() if line.startswith("  File")]
    assert frames[-1].endswith("in setup")
    assert 'raise ValueError("no data here")' in error.failure.traceback


def test_a_class_that_is_not_a_trainable_is_refused() -> None:
    class Other:
        pass

    with pytest.raises(InvalidConfig, match="Other must be a subclass"):
        tune.Tuner(Other)


class StateInADict(Diary):
    """Returns its state as a dict."""

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any] | None:
        return {"value": self.value}

    def load_checkpoint(self, checkpoint: Any) -> None:
        self.value = checkpoint["value"]


@pytest.mark.parametrize("kind", [Diary, StateInADict])
def test_restoring_by_hand_takes_over_the_iteration_of_the_checkpoint(
    tmp_path: Path, kind: type[tune.Trainable]
) -> None:
    config = {"diary": str(tmp_path / "diary")}
    trainable = kind(config)
    for _ in range(3):
        trainable.train()
    checkpoint = trainable.save(str(tmp_path / "saved"))
    other = kind(config)
    other.train()
    other.restore(checkpoint)
    assert (other.iteration, other.training_iteration) == (3, 3)
    result = other.train()
    assert result["training_iteration"] == 4
    assert result["time_total_s"] > result["time_this_iter_s"]
    for damaged in ("", "[" * 100_000, '{"training_iteration": -1, "time_total_s": 0}'):
        (tmp_path / "saved" / PROGRESS_FILE).write_text(damaged)
        other.restore(checkpoint)
        assert other.iteration == 4


def test_by_hand_a_result_has_the_facts_of_a_row_and_a_checkpoint_is_a_path(
    tmp_path: Path,
) -> None:
    class Steps(StateInADict):
        def step(self) -> dict[str, Any]:
            return {**super().step(), "timesteps_this_iter": 10}

        def _export_model(self, export_formats: list[str], export_dir: str) -> dict[str, str]:
            return {name: os.path.join(export_dir, name) for name in export_formats}

    trainable = Steps({"diary": str(tmp_path / "diary")})
    before = trainable.get_auto_filled_metrics(debug_metrics_only=True)
    assert "time_total_s" not in before
    assert (
        trainable.train().items()
        >= {
            "training_iteration": 1,
            "timesteps_total": 10,
            "iterations_since_restore": 1,
            "done": False,
            "pid": os.getpid(),
            "config": trainable.config,
            **{name: before[name] for name in ("trial_id", "hostname", "node_ip")},
        }.items()
    )
    assert len(trainable.train_buffered(buffer_time_s=3600, max_buffer_length=2)) == 2
    assert len(trainable.train_buffered(buffer_time_s=0)) == 1
    saved = trainable.save()
    assert (saved.metrics["value"], saved.checkpoint) == (4, saved)
    assert PROGRESS_FILE in os.listdir(saved)

    other = Steps({"diary": str(tmp_path / "diary")})
    other.restore(os.fspath(saved))
    result = other.train()
    assert (result["training_iteration"], result["iterations_since_restore"]) == (5, 1)
    assert (result["value"], result["timesteps_total"]) == (5, 50)
    state = other.get_state()
    assert (state["iteration"], state["timesteps_total"], state["last_result"]) == (5, 50, result)
    assert not other.reset({"diary": "another"})  # it does not define reset_config
    assert other.export_model("onnx", str(tmp_path)) == {"onnx": str(tmp_path / "onnx")}
    assert not other.is_actor()
    other.stop()
    assert (tmp_path / "diary").read_text().splitlines()[-1] == "cleanup"
    shutil.rmtree(saved)


def test_a_class_is_checked_for_saving_and_continuing(tmp_path: Path) -> None:
    config = {"diary": str(tmp_path / "diary")}
    assert validate_save_restore(StateInADict, config)
    lines = (tmp_path / "diary").read_text().splitlines()
    assert lines == ["setup", "setup", "step 1", "step 2", "step 3", "step 4", *["cleanup"] * 2]

    class Counts(StateInADict):
        def step(self) -> dict[str, Any]:
            return {**super().step(), "training_iteration": 1}

    with pytest.raises(
        TuneError, match="Counts was saved after iteration 3, and its next one is 1"
    ):
        validate_save_restore(Counts, config)
    with pytest.raises(NotImplementedError, match="must define save_checkpoint"):
        validate_save_restore(Broken, {"case": "no save"})
