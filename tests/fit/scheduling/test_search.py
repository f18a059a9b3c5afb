"""The trials of an experiment: grids, samples, seeds, objects, schedulers and searches."""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holdfast import tune
from holdfast.cli import main
from holdfast.experiment.folder.layout import Layout
from holdfast.experiment.records.journal import read_events
from holdfast.global_numbers import drawn_seed, seeded_numbers
from holdfast.scheduler.effects import Effect
from holdfast.scheduler.events import Event, Outlook, Suggested, SuggestedAhead
from holdfast.scheduler.machine import Machine
from holdfast.trial.errors import InvalidConfig, InvalidSearchSpace, TuneError
from holdfast.tune.schedulers import PopulationBasedTraining, ResourceChangingScheduler
from holdfast.tune.search import Searcher


class CountingScheduler(tune.Trainable):
    """Records its resources at each step."""

    def setup(self, config: dict[str, Any]) -> None:
        self.count = 0

    def step(self) -> dict[str, Any]:
        self.count += 1
        return {"count": self.count, "cpus": self.trial_resources.required_resources["CPU"]}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        Path(checkpoint_dir, "count").write_text(str(self.count))

    def load_checkpoint(self, checkpoint_dir: str) -> None:
        self.count = int(Path(checkpoint_dir, "count").read_text())


def at_the_second(controller: Any, trial: Any, result: Any, scheduler: Any) -> Any:
    """A function of the user's."""
    return {"CPU": 2 * trial.config["cpus"]} if result["count"] == 2 else None


def test_a_trial_resumes_where_it_was_with_what_the_users_function_gives_it(fit: Any) -> None:
    scheduler = ResourceChangingScheduler(None, at_the_second)
    result = fit(
        CountingScheduler,
        {"cpus": 1},
        tune.TuneConfig(scheduler=scheduler),
        stop={"training_iteration": 4},
    )[0]
    rows = result.metrics_dataframe
    assert list(rows["count"]) == [1, 2, 3, 4]
    assert list(rows["cpus"]) == [1, 1, 2, 2]


RUNNING = 2


class Paced(Searcher):
    """Takes longer than a fast search. It raises once, when it is asked for the fifth trial."""

    look_ahead = 1.0

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def note(self, text: str) -> None:
        with (self.folder / "calls").open("a") as file:
            file.write(text + "\n")

    def suggest(self, trial_id: str) -> dict[str, Any]:
        number = int(trial_id.rpartition("_")[2])
        self.note(f"suggest {number}")
        time.sleep(0.06)
        if number == 2 * RUNNING and not (self.folder / "raised").exists():
            (self.folder / "raised").touch()
            raise RuntimeError("no fifth one")
        return {"number": number, "folder": str(self.folder)}

    def recall(self, trial_id: str, config: dict[str, Any]) -> None:
        self.note(f"recall {config['number']}")


@contextmanager
def held_until_two_are_ahead(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Inside, the first trials run until the machine has the suggestions for two more."""
    handle, writers = Machine.handle, list[int]()

    def handling(machine: Machine, event: Event, **more: Any) -> list[Effect]:
        effects = handle(machine, event, **more)
        if isinstance(event, SuggestedAhead) and (event.suggestion.spec.index == 2 * RUNNING - 1):
            (folder / "over").touch()
            # This does not wait for a reader, and one that comes later does not wait for this.
            writers.extend(os.open(folder / f"{n}", os.O_RDWR) for n in range(RUNNING))
        return effects

    with monkeypatch.context() as patched:
        patched.setattr(Machine, "handle", handling)
        yield
    for writer in writers:
        os.close(writer)


def until_asked_ahead(config: dict[str, Any]) -> None:
    folder = Path(config["folder"])
    if config["number"] < RUNNING and not (folder / "over").exists():
        (folder / str(config["number"])).open().close()
    tune.report({"ok": 1})


def test_a_slow_search_is_asked_while_all_workers_are_busy_and_a_restore_loses_no_answer(
    fit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "search"
    folder.mkdir()
    for waiting in range(RUNNING):
        os.mkfifo(folder / f"{waiting}")
    tuning = tune.TuneConfig(
        search_alg=Paced(folder), num_samples=6, max_concurrent_trials=RUNNING
    )
    with (
        held_until_two_are_ahead(folder, monkeypatch),
        pytest.raises(RuntimeError, match="no fifth one"),
    ):
        fit(until_asked_ahead, {}, tuning, name="run")
    root = tmp_path / "results" / "run"
    events = [record.event for record, _ in read_events(Layout(root).journal)]
    begun = Counter(event.spec.trial_id for event in events if isinstance(event, Suggested))
    ahead = [
        one.suggestion.spec.trial_id[-1:] for one in events if isinstance(one, SuggestedAhead)
    ]
    assert ahead == ["2", "3"]
    assert set(begun.values()) == {1}

    results = tune.Tuner.restore(str(root), until_asked_ahead).fit()
    assert sorted((result.config or {})["number"] for result in results) == list(range(6))
    calls = (folder / "calls").read_text().splitlines()
    asked = [f"suggest {number}" for number in range(5)]
    recalled = [f"recall {number}" for number in range(4)]
    assert calls == [*asked, *recalled, "suggest 4", "suggest 5"]


def report(config: dict[str, Any]) -> None:
    tune.report({"loss": config["x"]})


SPACE = {
    "x": tune.uniform(0, 1),
    "y": tune.sample_from(lambda: random.random()),
    "z": tune.sample_from(lambda spec: spec.config.x + np.random.normal()),
}


def seed(number: int) -> None:
    random.seed(number)
    np.random.seed(number)


class AtRandom(Searcher):
    """Draws from the script's own numbers, as searchers written for Ray do."""

    def __init__(self) -> None:
        super().__init__(metric="loss", mode="min")
        self.known: dict[str, float] = {}

    def suggest(self, trial_id: str) -> dict[str, Any]:
        self.known[trial_id] = random.random() + np.random.random()
        return {"x": self.known[trial_id]}

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        assert result is not None
        assert result["loss"] == self.known.pop(trial_id)


@pytest.mark.parametrize("own", [False, True])
def test_a_seeded_script_draws_the_same_each_time_and_a_second_fit_others(
    fit: Any, *, own: bool
) -> None:
    def two_runs(number: int) -> list[list[dict[str, Any]]]:
        seed(number)
        return [configs_of(one()), configs_of(one())]

    def one(samples: int = 3) -> tune.ResultGrid:
        search = AtRandom() if own else None
        tuning = tune.TuneConfig(num_samples=samples, search_alg=search)
        results: tune.ResultGrid = fit(report, {} if own else SPACE, tuning)
        return results

    first = two_runs(7)
    assert two_runs(7) == first
    assert first[0] != first[1]
    assert two_runs(8)[0] != first[0]

    # A restore continues the sequence, whatever the script has drawn, and what the script draws
    # afterwards is the same.
    seed(7)
    begun, state = one(samples=1), (random.random(), np.random.random())
    seed(7)
    path = begun.experiment_path
    restored = tune.Tuner.restore(path, report, num_samples=3, extend=True).fit()
    assert configs_of(restored) == first[0]
    assert (random.random(), np.random.random()) == state


def test_functions_of_a_population_draw_the_same_in_a_seeded_script(fit: Any) -> None:
    def run() -> list[dict[str, Any]]:
        seed(3)
        scheduler = PopulationBasedTraining(
            metric="loss",
            mode="min",
            perturbation_interval=2,
            hyperparam_mutations={"x": lambda: random.random(), "y": np.random.rand},
        )
        return configs_of(fit(report, {}, tune.TuneConfig(scheduler=scheduler, num_samples=3)))

    first = run()
    assert run() == first
    assert len({json.dumps(config) for config in first}) == 3


def test_without_a_seed_of_the_script_runs_differ(run_script: Any) -> None:
    source = """
import sys
import holdfast
import random, numpy as np
exec(sys.argv[1])
print(holdfast.global_numbers.drawn_seed())
"""

    def drawn(before: str) -> str:
        return str(run_script(source, before).stdout.strip())

    assert drawn("random.random(); np.random.rand()") == "None"
    one = {drawn(f"random.seed(1); {more}") for more in ("", "np.random.rand(9)")}
    assert len(one) == 1  # the numbers of NumPy, which nobody has seeded, have no effect
    assert drawn("np.random.seed(1); random.random()") == drawn("np.random.seed(1)")
    assert drawn("np.random.seed(1)") not in one | {drawn("np.random.seed(2)")}


def test_numbers_in_a_block_are_those_of_its_name_and_do_not_count_as_the_scripts(
    run_script: Any,
) -> None:
    source = """
import holdfast
from holdfast.global_numbers import seeded_numbers, drawn_seed
import random, numpy as np
with seeded_numbers("a"):
    first = random.random(), np.random.rand()
with seeded_numbers("a"):
    assert (random.random(), np.random.rand()) == first
with seeded_numbers("b"):
    assert (random.random(), np.random.rand()) != first
print(drawn_seed())
"""
    assert run_script(source).stdout.strip() == "None"
    seed(4)
    expected = random.random(), np.random.random()
    seed(4)
    with seeded_numbers("c"):
        random.random(), np.random.random()
    assert (random.random(), np.random.random()) == expected


def test_one_number_is_taken_from_each_generator() -> None:
    seed(5)
    drawn_seed()
    after = random.getstate(), np.random.random()
    seed(5)
    random.getrandbits(63)
    np.random.randint(0, 2**63 - 1, dtype=np.int64)
    assert (random.getstate(), np.random.random()) == after


def report_config(config: dict[str, Any]) -> None:
    tune.report({"ok": 1, "loss": config.get("x", 0)})


def configs_of(results: tune.ResultGrid) -> list[dict[str, Any]]:
    return [dict(result.config or {}) for result in results]


def test_a_search_that_often_says_not_now_is_asked_again_without_end(fit: Any) -> None:
    """Each report may change the answer, and there are more reports than calls fit on a stack."""

    class OneAtATime(Searcher):
        made = 0
        alive = False

        def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
            if self.alive:
                return None
            self.made, self.alive = self.made + 1, self.made < 2
            return {"n": self.made} if self.made <= 2 else self.FINISHED

        def on_trial_complete(
            self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
        ) -> None:
            self.alive = False

    def many(config: dict[str, Any]) -> None:
        for step in range(1200):
            tune.report({"step": step})

    tuning = tune.TuneConfig(search_alg=OneAtATime(), num_samples=4, max_concurrent_trials=2)
    assert len(fit(many, {}, tuning)) == 2


def test_a_search_that_cannot_be_pickled_is_refused_before_the_first_trial(fit: Any) -> None:
    """A restore without it would continue with another search."""

    class Locked(Searcher):
        def __init__(self) -> None:
            super().__init__()
            self.lock = threading.Lock()

        def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
            return {"n": 1}

    with pytest.raises(TuneError, match=r"search_alg.*\.lock is a lock and cannot be pickled"):
        fit(report_config, {}, tune.TuneConfig(search_alg=Locked()))


class Counting(Searcher):
    """Suggests 1, 2, 3 and has a goal of its own."""

    def __init__(self) -> None:
        super().__init__(metric="loss", mode="max")
        self.made = 0

    def suggest(self, trial_id: str) -> dict[str, Any]:
        self.made += 1
        return {"x": self.made}


def test_the_metric_of_a_search_is_the_runs(fit: Any) -> None:
    search = tune.search.ConcurrencyLimiter(Counting(), 1)
    results = fit(report_config, {}, tune.TuneConfig(search_alg=search, num_samples=3))
    assert results.best.config == {"x": 3}
    assert tune.load(results.experiment_path).best.config == {"x": 3}


NUMPYS: dict[str, Any] = {"best": np.float32(0.5), "gain": np.float64(0.1)}


@pytest.mark.parametrize(
    ("expected", "kept"),
    [
        (Outlook(best=np.nan, gain=0.1), None),
        (Outlook(best=1.0, gain=np.inf), None),
        (Outlook(**NUMPYS), Outlook(best=0.5, gain=0.1)),
    ],
)
def test_a_search_may_expect_any_number_and_the_run_can_be_restored(
    fit: Any, expected: Outlook, kept: Outlook | None
) -> None:
    class Expecting(Counting):
        outlook = expected

    path = fit(report_config, {}, tune.TuneConfig(search_alg=Expecting())).experiment_path
    tuner = tune.Tuner.restore(path, report_config, num_samples=2, extend=True)
    assert [(result.metrics or {})["loss"] for result in tuner.fit()] == [1, 2]
    events = [record.event for record, _ in read_events(Layout(Path(path)).journal)]
    assert [one.outlook for one in events if isinstance(one, Suggested)] == [kept, kept]


class Bounded(Counting):
    """Says when a trial ends that x must be below 3."""

    def __init__(self) -> None:
        super().__init__()
        self.violating: set[str] = set()

    @property
    def infeasible(self) -> set[str]:
        return self.violating

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        if result is not None and result["loss"] > 2:
            self.violating.add(trial_id)


def test_a_trial_that_violates_a_constraint_of_the_search_is_the_best_nowhere(
    fit: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    results = fit(report_config, {}, tune.TuneConfig(search_alg=Bounded(), num_samples=4))
    path = results.experiment_path
    assert results.best.config == {"x": 2}
    assert tune.load(path).best.config == {"x": 2}
    capfd.readouterr()
    assert main(["best", path, "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["config"] == {"x": 2}
    assert main(["show", path, "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["best"]["value"] == 2


@pytest.mark.parametrize("of_scheduler", [{"mode": "max"}, {"metric": "loss"}])
def test_a_metric_and_a_mode_in_two_places_are_one_pair(
    fit: Any, of_scheduler: dict[str, Any]
) -> None:
    whole: dict[str, Any] = {"metric": "loss", "mode": "max"}
    rest = {name: value for name, value in whole.items() if name not in of_scheduler}
    scheduler = tune.schedulers.ASHAScheduler(**of_scheduler)
    results = fit(
        report_config,
        {"x": tune.grid_search([1, 2])},
        tune.TuneConfig(scheduler=scheduler, **rest),
    )
    assert results.best.config == {"x": 2}


def test_a_search_is_checked_against_its_space_before_anything_is_created(
    fit: Any, tmp_path: Path
) -> None:
    inner = tune.search.DEHBSearch(mode="min")
    for search in (inner, tune.search.ConcurrencyLimiter(inner, 1)):
        with pytest.raises(InvalidConfig, match="DEHBSearch needs a metric"):
            fit(report_config, {"x": tune.uniform(0, 1)}, tune.TuneConfig(search_alg=search))
    own = tune.search.DEHBSearch(metric="loss", mode="min")
    with pytest.raises(InvalidSearchSpace, match="grid_search"):
        fit(report_config, {"x": tune.grid_search([1])}, tune.TuneConfig(search_alg=own))
    assert list(tmp_path.iterdir()) == []


def test_a_search_that_cannot_begin_is_asked_nothing_and_its_own_error_is_the_only_one(
    fit: Any, tmp_path: Path
) -> None:
    class Broken(Counting):
        def set_search_properties(self, *args: Any, **more: Any) -> bool:
            raise ValueError("its own error")

        def suggest(self, trial_id: str) -> dict[str, Any]:
            (tmp_path / "asked").touch()
            return {}

    with pytest.raises(Exception, match="its own error"):
        fit(report_config, {}, tune.TuneConfig(search_alg=Broken(), num_samples=3))
    assert not (tmp_path / "asked").exists()


def test_a_search_that_returns_a_domain_is_reported_by_name(fit: Any) -> None:
    class Lazy(Searcher):
        def suggest(self, trial_id: str) -> dict[str, Any]:
            return {"net": {"widths": [tune.choice([1, 2])]}}

    with pytest.raises(TuneError, match=r"Lazy\.suggest\(\) returned a domain or a grid in 'net'"):
        fit(report_config, {}, tune.TuneConfig(search_alg=Lazy()))


def test_an_experiment_does_not_continue_with_another_function(fit: Any) -> None:
    def another(config: dict[str, Any]) -> None:
        tune.report({"ok": 2})

    results = fit(report_config)
    with pytest.raises(InvalidConfig, match="begun with the trainable 'report_config'"):
        tune.Tuner.restore(results.experiment_path, another)


def test_an_endless_search_with_a_budget_can_be_restored(fit: Any) -> None:
    tuning = tune.TuneConfig(num_samples=-1, time_budget_s=0.2)
    results = fit(report_config, {"x": tune.uniform(0, 1)}, tuning)
    restored = tune.Tuner.restore(results.experiment_path, report_config).fit()
    assert len(restored) >= len(results)


# -- grids and samples --------------------------------------------------------------------------


def test_a_search_that_leaves_out_a_parameter_of_the_space_is_an_error(fit: Any) -> None:
    """The trial would run without it, and the default in the user's code would hide it."""

    class Forgetful(Searcher):
        def set_search_properties(self, *given: Any, **spec: Any) -> bool:
            return True

        def suggest(self, trial_id: str) -> dict[str, Any]:
            return {"x": 1, "net": {"deep": True}}

    space = {"x": tune.uniform(0, 1), "net": {"width": tune.randint(1, 9)}, "fixed": 3}
    with pytest.raises(TuneError, match=r"Forgetful.*no value for 'net/width', which param_space"):
        fit(report_config, space, tune.TuneConfig(search_alg=Forgetful()))


def test_a_sample_from_that_raises_fails_fit_naming_its_key(fit: Any) -> None:
    space = {"net": {"bad": tune.sample_from(lambda spec: 1 / 0)}}
    with pytest.raises(InvalidSearchSpace, match="net/bad"):
        fit(report_config, space)


class Dataset:
    """A user's object without a useful repr."""

    def __init__(self, rows: list[int]) -> None:
        self.rows = rows

    def __repr__(self) -> str:
        return "<Dataset>"


def test_objects_in_the_space_reach_the_trial_as_what_they_are(fit: Any) -> None:
    def train(config: dict[str, Any]) -> None:
        data, chosen, function = config["data"], config["net"]["chosen"], config["function"]
        assert isinstance(data, Dataset)
        assert isinstance(config["many"][1], set)
        tune.report({"sum": sum(data.rows) + sum(chosen.rows) + function(1)})

    shared = Dataset([1, 2])
    space = {
        "data": shared,
        "net": {"chosen": tune.grid_search([Dataset([10]), Dataset([20])])},
        "function": lambda number: number + 100,
        "many": [1, {2, 3}],
    }
    results = fit(train, space)
    assert [result.metrics["sum"] for result in results] == [114, 124]
    assert (results[0].config or {})["data"] is shared


# -- a search algorithm of the user's -----------------------------------------------------------


class Recorder(Searcher):
    """Suggests x = 0, 1, 2, ... and records all its calls, and their threads."""

    def __init__(self, limit: int = 3) -> None:
        super().__init__(metric="loss", mode="min")
        self.limit = limit
        self.told: list[tuple[Any, ...]] = []
        self.threads: set[str] = set()

    def note(self, *what: Any) -> None:
        self.told.append(what)
        self.threads.add(threading.current_thread().name)

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        number = sum(kind == "suggest" for kind, *_ in self.told)
        if number == self.limit:
            return self.FINISHED
        self.note("suggest", trial_id)
        return {"x": number}

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        self.note("result", trial_id, result["training_iteration"], result["config"]["x"])

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        self.note("complete", trial_id, None if result is None else result["loss"], error)


def test_a_searcher_gets_results_and_ends_in_their_order_before_it_is_asked_again(
    fit: Any,
) -> None:
    class Takes(Recorder):
        def set_search_properties(
            self, metric: str | None, mode: str | None, config: Any, **spec: Any
        ) -> bool:
            self.note("space", metric, mode, sorted(config))
            return True

    def train(config: dict[str, Any]) -> None:
        if config["x"] == 1:
            raise RuntimeError("no good")
        tune.report({"loss": config["x"] * 10})
        tune.report({"loss": config["x"]})

    searcher = Takes()
    config = tune.TuneConfig(
        search_alg=searcher, num_samples=9, max_concurrent_trials=1, metric="loss", mode="min"
    )
    results = fit(train, {"x": tune.uniform(0, 1), "y": 3}, config)
    ids = [result.path.split("train_")[2][:11] for result in results]
    assert searcher.told == [
        ("space", "loss", "min", ["x", "y"]),
        ("suggest", ids[0]),
        ("result", ids[0], 1, 0),
        ("result", ids[0], 2, 0),
        ("complete", ids[0], 0, False),
        ("suggest", ids[1]),
        ("complete", ids[1], None, True),
        ("suggest", ids[2]),
        ("result", ids[2], 1, 2),
        ("result", ids[2], 2, 2),
        ("complete", ids[2], 2, False),
    ]
    assert len(searcher.threads) == 1
    assert searcher.threads != {threading.current_thread().name}


def test_a_searcher_that_says_not_now_while_nothing_runs_ends_the_run_with_an_error(
    fit: Any,
) -> None:
    class Never(Searcher):
        def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
            return None

    with pytest.raises(TuneError, match=r"Never\.suggest\(\) returned None.*FINISHED"):
        fit(report_config, None, tune.TuneConfig(search_alg=Never(), num_samples=3))


def test_a_space_that_no_one_would_search_is_refused_before_the_first_trial(fit: Any) -> None:
    with pytest.raises(InvalidConfig, match=r"'net/x'.*Recorder"):
        fit(
            report_config,
            {"net": {"x": tune.uniform(0, 1)}},
            tune.TuneConfig(search_alg=Recorder(), num_samples=1),
        )


@pytest.mark.parametrize("method", ["suggest", "on_trial_result", "set_search_properties"])
def test_an_error_in_a_searcher_is_raised_by_fit_as_it_is(fit: Any, method: str) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError(f"in {method}")

    def train(config: dict[str, Any]) -> None:
        tune.report({"loss": 1})
        threading.Event().wait()

    searcher = Recorder()
    setattr(searcher, method, broken)
    with pytest.raises(ZeroDivisionError, match=method):
        fit(train, None, tune.TuneConfig(search_alg=searcher, num_samples=1))


def test_a_searcher_that_calls_exit_ends_the_run_in_order(fit: Any, tmp_path: Path) -> None:
    class Leaving(Searcher):
        is_asked = has_result = False

        def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
            if self.has_result:
                raise SystemExit(3)
            first, self.is_asked = not self.is_asked, True
            return {"n": 1} if first else None

        def on_trial_complete(
            self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
        ) -> None:
            self.has_result = True

    tuning = tune.TuneConfig(search_alg=Leaving(), num_samples=2, max_concurrent_trials=2)
    with pytest.raises(SystemExit):
        fit(report_config, {}, tuning, name="run")
    (row,) = tmp_path.glob("results/run/*/result.json")  # the first trial's files are complete
    assert json.loads(row.read_text())["ok"] == 1


def test_after_a_restore_a_searcher_gets_its_history_and_no_question_again(
    fit: Any, tmp_path: Path
) -> None:
    class Remembers(Recorder):
        def recall(self, trial_id: str, config: dict[str, Any]) -> None:
            self.note("suggest", trial_id, config)

        def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
            answer = super().suggest(trial_id)
            return {"net": answer} if isinstance(answer, dict) else answer

        def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
            self.note("result", trial_id, result["loss"])

    def train(config: dict[str, Any]) -> None:
        number = config["net"]["x"]
        if number == 1 and not (tmp_path / "mended").exists():
            raise RuntimeError("not yet")
        tune.report({"loss": number * 5})

    space = {"net": {"width": 8}, "data": Dataset([1])}
    config = tune.TuneConfig(search_alg=Remembers(), num_samples=3, max_concurrent_trials=1)
    failing = tune.FailureConfig(fail_fast=True)
    first = fit(train, space, config, name="again", failure_config=failing)
    assert len(first) == 2
    assert first[0].config is not None
    assert first[0].config["net"] == {"width": 8, "x": 0}
    assert first[0].config["data"] is space["data"]

    (tmp_path / "mended").touch()
    tuner = tune.Tuner.restore(str(tmp_path / "results" / "again"), train, resume_errored=True)
    searcher = tuner._request.tune.search_alg
    results = tuner.fit()
    assert first[0].metrics is not None
    ids = [f"{first[0].metrics['trial_id'][:5]}_{number:05d}" for number in range(3)]
    before, after = searcher.told[:4], searcher.told[4:]
    # The failure of the second trial no longer counts: it is resumed.
    assert before == [
        ("suggest", ids[0], {"net": {"x": 0}}),
        ("result", ids[0], 0),
        ("complete", ids[0], 0, False),
        ("suggest", ids[1], {"net": {"x": 1}}),
    ]
    assert sorted(after, key=lambda what: (what[1], ["suggest", "result"].count(what[0]))) == [
        ("complete", ids[1], 5, False),
        ("result", ids[1], 5),
        ("complete", ids[2], 10, False),
        ("suggest", ids[2]),
        ("result", ids[2], 10),
    ]
    assert [(result.metrics or {})["loss"] for result in results] == [0, 5, 10]


def test_a_search_that_suggests_one_config_for_ever_is_ended_and_reported(
    fit: Any, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stuck(Searcher):
        def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
            return {"x": 1}

    monkeypatch.setattr("holdfast.experiment.control.proposer.MOST_ALIKE", 3)
    results = fit(
        report_config, None, tune.TuneConfig(search_alg=Stuck(), num_samples=9), verbose=1
    )
    assert len(results) == 3
    assert "Stuck has suggested the same config 4 times in a row" in capfd.readouterr().err


def test_a_search_that_has_no_further_config_says_so(
    fit: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    space = {"x": tune.choice([1, 2, 3])}
    goal: dict[str, Any] = {"metric": "loss", "mode": "min", "search_alg": "auto"}
    for samples, said in ((3, False), (9, True)):
        results = fit(
            report_config, space, tune.TuneConfig(num_samples=samples, **goal), verbose=1
        )
        assert len(results) == 3
        ended = "AutoSearch found no further config: the search is over after 3 of 9 trials"
        assert (ended in capfd.readouterr().err) is said


def test_what_is_not_a_search_algorithm_is_refused(fit: Any) -> None:
    with pytest.raises(InvalidConfig, match=r"search_alg must be a tune\.search\.Searcher.*1"):
        fit(report_config, None, tune.TuneConfig(search_alg=[1]))


def test_trials_that_a_restore_leaves_as_they_are_are_reported_as_failed(
    fit: Any, tmp_path: Path
) -> None:
    class Two(Recorder):
        def recall(self, trial_id: str, config: dict[str, Any]) -> None:
            self.note("suggest", trial_id)

    def train(config: dict[str, Any]) -> None:
        tune.report({"loss": config["x"]})
        if config["x"] == 1:
            raise RuntimeError("the end")
        threading.Event().wait()

    failing = tune.FailureConfig(fail_fast=True)
    tuning = tune.TuneConfig(search_alg=Two(2), num_samples=2, max_concurrent_trials=2)
    fit(train, None, tuning, name="left", failure_config=failing)
    path = str(tmp_path / "results" / "left")
    tuner = tune.Tuner.restore(path, train, resume_unfinished=False)
    searcher = tuner._request.tune.search_alg
    tuner.fit()
    assert [what[3] for what in searcher.told if what[0] == "complete"] == [True, True]


def report_and_test(config: dict[str, Any]) -> None:
    for epoch in range(1, 3):
        tune.report({"loss": config["x"] + 1 / epoch})
    tune.report({"test_accuracy": 0.9})


def test_a_trial_whose_last_report_lacks_the_goal_has_its_last_value_everywhere(
    fit: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    search = Recorder()
    asked = tune.TuneConfig(search_alg=search, num_samples=3)
    results = fit(report_and_test, {}, asked, verbose=1)
    ends = [told[2] for told in search.told if told[0] == "complete"]
    assert sorted(ends) == [0.5, 1.5, 2.5]
    path = results.experiment_path
    assert results.best.config == tune.load(path).best.config == {"x": 0}
    shown = capfd.readouterr().err
    assert "best loss=0.5" in shown
    assert main(["show", path, "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["best"]["value"] == 0.5
