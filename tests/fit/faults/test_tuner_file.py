"""A restore with a faulty tuner.pkl: following the error's advice works."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.experiment.user_objects.tuner_file import BrokenTunerFile
from holdfast.scheduler.policy import Decision, Observation, TrialScheduler, View
from holdfast.tune.search import BasicVariantGenerator, Searcher

SPACE = {"n": tune.grid_search([1, 2])}


def train(config: dict[str, Any]) -> None:
    """Fails in its first attempt, so that there is something to resume."""
    tune.report({"n": config.get("n", 0)})
    if tune.get_context().get_attempt() == 1:
        raise RuntimeError("a stumble")
    tune.report({"n": config.get("n", 0), "ended": 1})


def truncate(path: str) -> None:
    file = Path(path, "tuner.pkl")
    file.write_bytes(file.read_bytes()[:100])


def go_on(path: str, trainable: Any = None, **more: Any) -> tune.ResultGrid:
    return tune.Tuner.restore(path, trainable, resume_errored=True, **more).fit()


def each(results: tune.ResultGrid, *names: str) -> list[tuple[Any, ...]]:
    """This metric of all trials."""
    rows = [result.metrics or {} for result in results]
    return [tuple(row.get(name) for name in names) for row in rows]


def test_what_must_be_given_is_asked_for_at_once_and_is_all_that_is_needed(fit: Any) -> None:
    path = fit(train, SPACE).experiment_path
    truncate(path)
    asked = r"truncated\): pass restore\(\) the trainable and param_space .*\(path, trainable, "
    with pytest.raises(BrokenTunerFile, match=asked):
        go_on(path)
    with pytest.raises(BrokenTunerFile, match=r"pass restore\(\) param_space"):
        go_on(path, train)
    results = go_on(path, train, param_space=SPACE)
    assert each(results, "n", "ended") == [(1, 1), (2, 1)]


def test_without_a_space_the_trainable_is_enough(fit: Any) -> None:
    path = fit(train).experiment_path
    truncate(path)
    with pytest.raises(
        BrokenTunerFile, match=r"pass restore\(\) the trainable .*restore\(path, trainable\), or"
    ):
        go_on(path)
    assert each(go_on(path, train), "ended") == [(1,)]


def test_random_search_resumes_with_its_seed(fit: Any) -> None:
    config = tune.TuneConfig(num_samples=2, search_alg=BasicVariantGenerator(random_state=7))
    space = {"n": tune.uniform(0, 1)}
    failures = tune.FailureConfig(fail_fast=True)
    one = tune.TuneConfig(
        num_samples=2,
        search_alg=BasicVariantGenerator(random_state=7),
        max_concurrent_trials=1,
    )
    expected = each(fit(train, space, config), "n")
    path = fit(train, space, one, failure_config=failures).experiment_path
    truncate(path)
    assert each(go_on(path, train, param_space=space), "n") == expected


class Own(TrialScheduler):
    def decide(self, view: View, observation: Observation) -> list[Decision]:
        return []


def test_without_its_scheduler_a_run_waits_for_a_copy_of_the_file(
    fit: Any, tmp_path: Path
) -> None:
    path = fit(train, SPACE, tune.TuneConfig(scheduler=Own())).experiment_path
    copy = Path(path, "tuner.pkl").read_bytes()
    truncate(path)
    with pytest.raises(BrokenTunerFile, match=r"another scheduler.*replace the file with a copy"):
        go_on(path, train, param_space=SPACE)
    # The results, which the error mentions, can be read meanwhile.
    assert len(tune.ExperimentAnalysis(path).trials) == 2
    Path(path, "tuner.pkl").write_bytes(copy)
    assert go_on(path).num_errors == 0


class Three(Searcher):
    """Suggests one, two and three."""

    def __init__(self) -> None:
        super().__init__()
        self.made = 0

    def suggest(self, trial_id: str) -> dict[str, Any] | str:
        self.made += 1
        return {"n": self.made} if self.made < 4 else Searcher.FINISHED


def test_without_its_search_algorithm_a_run_begins_no_other_trials_and_says_so(
    fit: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    path = fit(
        train,
        None,
        tune.TuneConfig(search_alg=Three(), num_samples=3, max_concurrent_trials=1),
        failure_config=tune.FailureConfig(fail_fast=True),
        verbose=1,
    ).experiment_path
    truncate(path)
    results = go_on(path, train)
    assert each(results, "ended") == [(1,)] * len(results)
    assert len(results) < 3
    told = capfd.readouterr().err
    assert "search_alg is not in tuner.pkl: the existing trials resume" in told
    assert "tuner.pkl cannot be read" in told


MODULE = """
from holdfast import tune

class Quiet(tune.Callback):
    pass

def stop(trial_id, result):
    return False
"""


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A user's module, which exists only while `there` is true."""
    there = tmp_path / "modules" / "plugins_of_mine.py"
    there.parent.mkdir()
    there.write_text(MODULE)
    monkeypatch.syspath_prepend(str(there.parent))
    yield there
    sys.modules.pop("plugins_of_mine", None)


def imported(there: Path) -> Any:
    import importlib

    importlib.invalidate_caches()
    return importlib.import_module("plugins_of_mine")


def hide(there: Path) -> str:
    source = there.read_text()
    there.unlink()
    del sys.modules["plugins_of_mine"]
    return source


def test_callbacks_that_cannot_be_loaded_are_skipped_and_reported(
    fit: Any, plugins: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    callback = imported(plugins).Quiet()
    path = fit(train, SPACE, callbacks=[callback], verbose=1).experiment_path
    hide(plugins)
    assert go_on(path, train).num_errors == 0
    told = capfd.readouterr().err
    assert "callbacks in" in told
    assert "No module named 'plugins_of_mine'): the experiment resumes without it" in told


def test_a_stop_function_that_cannot_be_loaded_is_waited_for(fit: Any, plugins: Path) -> None:
    path = fit(train, SPACE, stop=imported(plugins).stop).experiment_path
    source = hide(plugins)
    with pytest.raises(BrokenTunerFile, match=r"another stop\. Make everything that it needs"):
        go_on(path, train)
    plugins.write_text(source)
    imported(plugins)
    assert go_on(path, train).num_errors == 0
