"""Tests that hold for XGBoost and for LightGBM: one suite, which the tests of each inherit."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from holdfast import data, train, tune
from holdfast.train.boosting import BoostingTrainer
from holdfast.trial.errors import InvalidConfig
from tests.frameworks.example import Example, learned, nodes_of
from tests.rig.bench import Bench
from tests.rig.nodes.machines import Machines
from tests.rig.script import acknowledged

EXAMPLES = Path(__file__).parents[2] / "examples" / "boosting"


@dataclass(frozen=True, kw_only=True)
class Library:
    """The properties of one library that the suite needs.

    `learn(params, rows, rounds, model, callbacks)` trains in this process, and evaluates on these
    rows under the name `all`. `before(told)` is a callback of the library that passes on the
    number of rounds before each one. `metric` is the name of the argument for a user's metric, and
    `counted` the return value of such a metric.
    """

    example: str
    trainer: type[BoostingTrainer]
    callback: Any
    tune_callback: Any
    tune_checkpoint_callback: Any
    filename: str
    params: dict[str, Any]
    rate: str
    loss: str
    metric: str
    counted: Callable[[int], tuple[Any, ...]]
    early_stop: dict[str, Any]
    rounds_of: Callable[[Any], int]
    learn: Callable[..., None]
    before: Callable[[Callable[[int], None]], Any]
    losses: Callable[[int], list[float]]


def frame(rows: int = 160, seed: int = 0) -> pd.DataFrame:
    """Few values, so that several ranks find the same bounds between them as one does."""
    features = np.random.default_rng(seed).integers(0, 8, size=(rows, 3)).astype(float)
    label = (features[:, 0] + features[:, 1] > features[:, 2] + 4).astype(float)
    return pd.DataFrame(features, columns=["a", "b", "c"]).assign(y=label)


def values(result: train.Result, name: str) -> list[float]:
    """One metric of each round; each round was reported once."""
    found = list(result.rows())
    assert [row["training_iteration"] for row in found] == list(range(1, len(found) + 1))
    return [row[name] for row in found]


# -- what runs in the workers ---------------------------------------------------------------------


def deadly(counted: Callable[[int], tuple[Any, ...]]) -> Callable[..., tuple[Any, ...]]:
    """A metric in which the second rank dies once: in the fourth round, of two datasets."""

    def metric(predictions: Any, evaluated: Any) -> tuple[Any, ...]:
        context = train.get_context()
        lived = os.path.join(context.get_trial_dir(), f"{context.get_attempt()}-{os.getpid()}")
        with open(lived, "a") as calls:
            calls.write("x")
        here = (context.get_attempt(), context.get_world_rank(), os.path.getsize(lived))
        if here == (1, 1, 7):
            os.kill(os.getpid(), signal.SIGKILL)
        return counted(len(predictions))

    return metric


def mortal(library: Library) -> Callable[[dict[str, Any]], None]:
    """A trial that dies once, when it has three rounds."""

    def boosted(config: dict[str, Any]) -> None:
        begun = tune.get_checkpoint()
        kept, own = library.tune_checkpoint_callback, f"own-{library.filename}"
        model = kept.get_model(begun, own) if begun else None
        done = library.rounds_of(model) if model else 0

        def die(rounds: int) -> None:
            if (tune.get_context().get_attempt(), rounds) == (1, 3):
                os.kill(os.getpid(), signal.SIGKILL)

        report = kept({"loss": library.loss}, filename=own, frequency=2)
        params = {**library.params, library.rate: config["rate"]}
        library.learn(params, frame(), 5 - done, model, [report, library.before(die)])

    return boosted


def counting(library: Library) -> Callable[[dict[str, Any]], None]:
    """The number of threads of this process that compute."""

    def counted(config: dict[str, Any]) -> None:
        before = len(os.listdir("/proc/self/task"))
        features = pd.DataFrame(np.random.default_rng(0).normal(size=(20_000, 20)))
        library.learn(library.params, features.assign(y=(features[0] > 0).astype(float)), 2)
        tune.report({"threads": 1 + len(os.listdir("/proc/self/task")) - before})

    return counted


def mistaken(library: Library) -> Callable[[dict[str, Any]], None]:
    def reported(config: dict[str, Any]) -> None:
        wrong = library.tune_callback(["loss"])
        with pytest.raises(tune.TuneError, match="no 'loss' to report; what there is: 'all-"):
            library.learn(library.params, frame(), 1, None, [wrong])

    return reported


# -- the suite ------------------------------------------------------------------------------------


class Boosted:
    """The tests of a library are a subclass with its `library`."""

    library: Library

    def trainer(self, tmp_path: Path, **more: Any) -> BoostingTrainer:
        run = {"storage_path": str(tmp_path / "results"), "name": "run", "verbose": 0}
        scaling = {"num_workers": more.pop("workers", 2), "resources_per_worker": {"CPU": 0.1}}
        given = {
            "label_column": "y",
            "params": self.library.params,
            "datasets": {"train": frame(), "all": frame()},
        }
        trainer: Any = self.library.trainer
        made: BoostingTrainer = trainer(
            scaling_config=train.ScalingConfig(**scaling),
            run_config=train.RunConfig(**{**run, **more.pop("run", {})}),
            **{**given, **more},
        )
        return made

    def losses(self, result: train.Result) -> list[float]:
        return values(result, self.library.loss)

    def plain(self, rounds: int) -> Any:
        """The losses of the same training in one process, without holdfast."""
        return pytest.approx(self.library.losses(rounds), rel=1e-4)

    def saved_rounds(self, result: train.Result) -> int:
        assert result.checkpoint
        return self.library.rounds_of(self.library.trainer.get_model(result.checkpoint))

    def test_a_tuner_searches_under_the_trainers_names_and_says_when_to_save(
        self, tmp_path: Path
    ) -> None:
        kept = train.CheckpointConfig(checkpoint_frequency=1)
        results = tune.Tuner(
            self.trainer(tmp_path, workers=1, run={"name": "own"}),
            param_space={
                "params": {self.library.rate: tune.grid_search([0.1, 0.5])},
                "num_boost_round": tune.grid_search([2, 3]),
            },
            run_config=train.RunConfig(storage_path=str(tmp_path), checkpoint_config=kept),
        ).fit()
        assert not results.errors
        assert [len(self.losses(result)) for result in results] == [2, 2, 3, 3]
        assert [len(result.best_checkpoints) for result in results] == [2, 2, 3, 3]
        assert len({self.losses(result)[-1] for result in results}) == 4

    def test_a_callback_of_the_users_own_says_when_to_save(self, tmp_path: Path) -> None:
        own = self.library.callback(frequency=1)
        result = self.trainer(tmp_path, workers=1, num_boost_round=2, callbacks=[own]).fit()
        assert (len(self.losses(result)), len(result.best_checkpoints)) == (2, 2)

    # -- in a loop ----------------------------------------------------------------------------

    @pytest.mark.smoke
    def test_killed_controller_and_killed_rank_cost_no_round_and_change_no_number(
        self, bench: Bench, benches: Any, tmp_path: Path
    ) -> None:
        example = Example(EXAMPLES / self.library.example, "--rounds", "6")
        after = example.disturbed(bench, at=(3, 5))
        assert "6 rounds, loss 0." in after.stdout
        kept = [(note["attempt"], note["iteration"]) for note in acknowledged(bench.notes())]
        assert kept == [(1, 1), (1, 2), (2, 3), (2, 4), (3, 5), (3, 6)]
        with benches(tmp_path / "whole") as whole:
            example.whole(whole)
            assert learned(bench, "loss") == learned(whole, "loss")
        assert bench.problems() == []

    def test_the_ranks_meet_on_two_machines_and_learn_what_those_of_one_learn(
        self, bench: Bench, two_machines: Machines, benches: Any, tmp_path: Path
    ) -> None:
        example = Example(EXAMPLES / self.library.example, "--rounds", "3")
        script = example.whole(bench)
        assert script.left() == []
        assert nodes_of(bench.root) == set(two_machines.names)
        with benches(tmp_path / "whole") as whole:
            example.whole(whole)
            assert learned(bench, "loss") == learned(whole, "loss")
        assert bench.problems() == []

    # -- without a loop -----------------------------------------------------------------------

    def test_without_a_loop_a_killed_rank_resumes_from_the_newest_saved_round(
        self, tmp_path: Path
    ) -> None:
        run = {
            "failure_config": train.FailureConfig(max_failures=1),
            "checkpoint_config": train.CheckpointConfig(checkpoint_frequency=2),
        }
        metric = {self.library.metric: deadly(self.library.counted)}
        result = self.trainer(tmp_path, num_boost_round=5, run=run, **metric).fit()
        assert self.losses(result) == self.plain(5)
        saved = [row.get("checkpoint_dir_name") for row in result.rows()]
        assert saved == [None, "checkpoint_000000", None, "checkpoint_000001", "checkpoint_000002"]
        second = [path.stat().st_size for path in Path(result.path).glob("2-*")]
        assert second == [6, 6]  # three rounds, over two datasets, in each rank
        assert self.saved_rounds(result) == 5

    def test_what_was_trained_to_the_end_is_not_trained_again(self, tmp_path: Path) -> None:
        def further(rounds: int, name: str, begun: train.Checkpoint | None) -> train.Result:
            more = {"num_boost_round": rounds, "resume_from_checkpoint": begun}
            return self.trainer(tmp_path, workers=1, run={"name": name}, **more).fit()

        first = further(2, "first", None)
        more = further(3, "more", first.checkpoint)
        assert self.losses(more) == pytest.approx(self.library.losses(3)[2:], rel=1e-4)
        assert list(further(3, "done", more.checkpoint).rows()) == []

    def test_a_dataset_of_holdfast_data_is_shared_out_among_the_ranks(
        self, tmp_path: Path
    ) -> None:
        datasets = {"train": data.from_pandas(frame()), "all": frame()}
        result = self.trainer(tmp_path, datasets=datasets, num_boost_round=3).fit()
        assert self.losses(result) == self.plain(3)

    def test_an_early_stop_saves_a_model_and_other_datasets_are_evaluated(
        self, tmp_path: Path
    ) -> None:
        given: dict[str, Any] = {"params": self.library.params, "num_boost_round": 50}
        for name, value in self.library.early_stop.items():
            given[name] = {**given[name], **value} if isinstance(value, dict) else value
        datasets = {"train": frame(), "all": frame(40, seed=1).assign(y=0.0)}
        result = self.trainer(tmp_path, datasets=datasets, **given).fit()
        losses = self.losses(result)
        assert len(losses) < 50
        self.stopped(losses, self.saved_rounds(result))

    def stopped(self, losses: Sequence[float], saved: int) -> None:
        """The last of these losses were worse; a model with this many rounds was saved."""
        raise NotImplementedError

    @pytest.mark.parametrize(
        ("given", "told"),
        [
            ({"params": None}, "needs train_loop_per_worker, or label_column, params and"),
            ({"params": 3}, r"Trainer\(params=3\) must be a dict"),
            ({"datasets": {"valid": []}}, r"learns from datasets\['train'\]"),
            ({"num_rounds": 3}, r"Trainer\(num_rounds=\.\.\.\): it takes besides"),
            ({"num_boost_round": 0}, r"Trainer\(num_boost_round=0\) must be 1 or more"),
            (
                {"train_loop_per_worker": print, "params": None},
                r"label_column=\.\.\.\) is for a training without",
            ),
        ],
    )
    def test_what_cannot_be_trained_without_a_loop_is_refused(
        self, tmp_path: Path, given: dict[str, Any], told: str
    ) -> None:
        with pytest.raises(InvalidConfig, match=told):
            self.trainer(tmp_path, **given)

    @pytest.mark.parametrize(
        ("given", "told"),
        [
            ({"label_column": "z"}, "'z' is not a column of the dataset 'train': 'a', 'b'"),
            ({"datasets": {"train": frame(1)}}, "rank 1 of 2 has no row of the dataset 'train'"),
        ],
    )
    def test_data_that_cannot_be_learned_is_reported_by_name(
        self, tmp_path: Path, given: dict[str, Any], told: str
    ) -> None:
        with pytest.raises(train.TrainingFailedError, match=told):
            self.trainer(tmp_path, **given).fit()
        # Nor do messages of the ranks' group at its end hide the cause.
        (folder,) = Path(tmp_path, "results", "run").glob("*Trainer*/")
        assert "Exception ignored" not in Path(folder, "stderr").read_text()

    # -- in trials ----------------------------------------------------------------------------

    def test_trials_are_killed_and_continue_and_the_best_one_has_its_model(
        self, tmp_path: Path
    ) -> None:
        grid = tune.Tuner(
            mortal(self.library),
            param_space={"rate": tune.grid_search([0.5, 0.05])},
            tune_config=tune.TuneConfig(metric="loss", mode="min"),
            run_config=tune.RunConfig(
                storage_path=str(tmp_path),
                failure_config=tune.FailureConfig(max_failures=1),
                verbose=0,
            ),
        ).fit()
        assert [str(error) for error in grid.errors] == []
        best = grid.get_best_result()
        assert best.config is not None
        assert best.config["rate"] == 0.5
        assert values(best, "loss") == self.plain(5)
        assert best.checkpoint
        model = self.library.tune_checkpoint_callback.get_model(
            best.checkpoint, f"own-{self.library.filename}"
        )
        assert self.library.rounds_of(model) == 5

    def test_a_metric_that_is_not_evaluated_is_reported_with_those_that_are(
        self, tmp_path: Path
    ) -> None:
        (result,) = self.tuned(tmp_path, mistaken(self.library))
        assert result.error is None

    @pytest.mark.parametrize("cpus", [1, 2])
    def test_a_trial_computes_on_as_many_threads_as_it_has_cpus(
        self, tmp_path: Path, cpus: int
    ) -> None:
        trial = tune.with_resources(counting(self.library), {"CPU": cpus})
        (result,) = self.tuned(tmp_path, trial)
        assert result.metrics is not None
        assert result.metrics["threads"] == min(cpus, os.cpu_count() or 1)

    def test_ten_groups_at_once_each_meet_at_a_place_of_their_own(self, tmp_path: Path) -> None:
        grid = tune.Tuner(
            self.trainer(tmp_path, num_boost_round=2),
            param_space={"train_loop_config": {"seed": tune.grid_search(list(range(10)))}},
        ).fit()
        assert [str(error) for error in grid.errors] == []
        assert [len(self.losses(result)) for result in grid] == [2] * 10

    def tuned(self, tmp_path: Path, trainable: Any) -> tune.ResultGrid:
        run = tune.RunConfig(storage_path=str(tmp_path), verbose=0)
        return tune.Tuner(trainable, run_config=run).fit()

    # -- without workers ----------------------------------------------------------------------

    def test_its_file_has_the_name_that_is_documented(self) -> None:
        assert self.library.filename == self.library.callback.CHECKPOINT_NAME
