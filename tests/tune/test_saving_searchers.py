"""Searchers that a script saves and restores itself: `save`, `restore`, and states."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.trial.errors import InvalidConfig
from holdfast.tune.search import (
    BasicVariantGenerator,
    ConcurrencyLimiter,
    Repeater,
    Searcher,
    TuneBOHB,
)

SPACE = {"x": tune.uniform(0, 1), "kind": tune.choice(["a", "b"])}
POINTS = [{"x": 0.1}, {"x": 0.2}, {"x": 0.3}]


def bohb(**more: Any) -> TuneBOHB:
    return TuneBOHB(metric="loss", mode="min", seed=1, points_to_evaluate=POINTS, **more)


def opened(search: Searcher) -> Searcher:
    search.set_search_properties("loss", "min", {**SPACE, "call": tune.choice([print, "c"])})
    return search


def ran(search: Searcher, trials: range, *, failing: int = -1) -> list[Any]:
    found = []
    for trial in trials:
        config = search.suggest(f"t{trial}")
        assert isinstance(config, dict)
        found.append(config)
        row = {"loss": config["x"], "training_iteration": 1}
        search.on_trial_result(f"t{trial}", row)
        search.on_trial_complete(f"t{trial}", row, error=trial == failing)
    return found


def test_a_restored_search_knows_what_the_saved_one_has_learned(tmp_path: Path) -> None:
    file = tmp_path / "new" / "state.json"
    first = opened(bohb())
    ran(first, range(2), failing=1)
    first.save(file)
    assert json.loads(file.read_text())["suggested"] == 2  # and nothing that must be unpickled

    second = bohb()
    second.restore(str(file))
    kept = pickle.loads(pickle.dumps(second))  # as a run keeps it for its own restores
    for search in (opened(second), opened(kept)):
        assert ran(search, range(2, 3))[0]["x"] == 0.3  # the points continue
        state = search.get_state()
        assert [one["losses"] for one in state["ended"]] == [[0.1], None, [0.3]]
    assert ran(second, range(3, 30)) == ran(kept, range(3, 30))


def test_a_folder_has_a_file_for_each_session_and_the_last_counts(tmp_path: Path) -> None:
    for count, session in ((1, "2026-01"), (2, "2026-02")):
        search = opened(ConcurrencyLimiter(bohb(), max_concurrent=1))
        ran(search, range(count))
        search.save_to_dir(tmp_path, session)
    found = Repeater(bohb(), repeat=2)
    found.restore_from_dir(tmp_path)
    assert len(found.get_state()["ended"]) == 2
    with pytest.raises(FileNotFoundError, match=r"searcher-state-\*\.pkl, as save_to_dir"):
        OwnSearch().restore_from_dir(tmp_path / "none")


class Bomb:
    def __reduce__(self) -> Any:
        return os.mkdir, ("bomb",)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (pickle.dumps(Bomb()), "it is not JSON. Nothing of it was loaded"),
        (b"[]", r"not a state that TuneBOHB.get_state\(\)"),
        (b'{"searcher": "AxSearch", "version": 1}', "the state of 'AxSearch', and not of TuneB"),
        (b'{"searcher": "TuneBOHB", "version": 2}', "a newer version of holdfast"),
        (b'{"searcher": "TuneBOHB", "version": 1}', "damaged"),
        (
            b'{"searcher": "TuneBOHB", "version": 1, "suggested": 1, '
            b'"ended": [{"values": {}, "losses": ["a"], "pruned": false}]}',
            "damaged",
        ),
    ],
)
def test_any_other_file_is_refused_and_not_unpickled(
    content: bytes, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "state"
    file.write_bytes(content)
    with pytest.raises(InvalidConfig, match=told):
        bohb().restore(file)
    assert not Path("bomb").exists()


class OwnSearch(Searcher):
    """As searchers are written for Ray: with its own files, and the names of the base class."""

    def __init__(self, metric: str = "loss", mode: str = "min") -> None:
        super().__init__(metric=metric, mode=mode)
        self.live: dict[str, float] = {}
        self.best = [1.0, 0.5]
        self.count = 0

    def set_search_properties(
        self, metric: str | None, mode: str | None, config: Mapping[str, Any], **spec: Any
    ) -> bool:
        self._metric, self._mode = metric or self._metric, mode or self._mode
        return True

    def suggest(self, trial_id: str) -> dict[str, Any]:
        self.count += 1
        self.live[trial_id] = self.best[1] + self.count / 100
        return {"x": self.live[trial_id], "kind": "b"}

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        x = self.live.pop(trial_id)
        if result and self.metric in result:
            self.best = min(self.best, [result[self.metric], x])

    def save(self, checkpoint_path: str) -> None:
        with Path(checkpoint_path).open("wb") as file:
            pickle.dump((self.best, self.count), file)

    def restore(self, checkpoint_path: str) -> None:
        with Path(checkpoint_path).open("rb") as file:
            self.best, self.count = pickle.load(file)


class Plain(OwnSearch):
    """Without files of its own."""

    save = Searcher.save
    restore = Searcher.restore


@pytest.mark.parametrize("kind", [OwnSearch, Plain])
def test_a_search_of_the_user_may_save_itself(kind: type[OwnSearch], tmp_path: Path) -> None:
    first = kind()
    ran(first, range(3))
    limited = ConcurrencyLimiter(first, max_concurrent=4)
    limited.save_to_dir(tmp_path, "one")
    other = kind()
    other.restore_from_dir(tmp_path)
    assert (other.best, other.count) == (first.best, 3)
    assert (other.metric, other._metric, other.mode, other._mode) == ("loss", "loss", "min", "min")


def test_a_wrapped_search_keeps_the_names_of_its_files(tmp_path: Path) -> None:
    class Named(OwnSearch):
        CKPT_FILE_TMPL = "named-{}.pkl"

    first = ConcurrencyLimiter(Named(), max_concurrent=4)
    ran(first, range(3))
    first.save_to_dir(tmp_path, "one")
    assert os.listdir(tmp_path) == ["named-one.pkl"]
    inner = Named()
    Repeater(inner, repeat=2).restore_from_dir(tmp_path)
    assert inner.count == 3


@pytest.mark.process
def test_a_run_continues_with_what_another_has_learned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after a restore of the second one. Files of searchers in its folder are not read."""

    def train(config: dict[str, Any]) -> None:
        tune.report({"loss": config["x"]})

    def tuner(search: Searcher, name: str) -> tune.Tuner:
        return tune.Tuner(
            train,
            param_space=SPACE,
            tune_config=tune.TuneConfig(
                metric="loss", mode="min", num_samples=2, search_alg=search
            ),
            run_config=tune.RunConfig(name=name, storage_path=str(tmp_path), verbose=0),
        )

    first, second, third = bohb(), bohb(), bohb()
    done = tuner(first, "first").fit()
    second.restore_from_dir(done.experiment_path)  # of its trials, since it has no file
    first.save(tmp_path / "state")
    third.restore(tmp_path / "state")
    results = tuner(third, "second").fit()
    assert results[0].config is not None
    assert results[0].config["x"] == 0.3
    assert sorted(one["losses"] for one in first.get_state()["ended"]) == [[0.1], [0.2]]
    assert len(third.get_state()["ended"]) == 4

    monkeypatch.chdir(tmp_path)
    Path(results.experiment_path, "searcher-state-x.pkl").write_bytes(pickle.dumps(Bomb()))
    more = tune.Tuner.restore(results.experiment_path, train, num_samples=3, extend=True).fit()
    assert more.num_errors == 0
    assert not Path("bomb").exists()
    second.set_search_properties("loss", "min", SPACE)
    learned = second.get_state()["ended"]
    assert sorted(one["losses"] for one in learned) == [[0.1], [0.2]]


def test_names_of_rays_search_that_are_missing_say_what_to_write() -> None:
    from holdfast.tune import search

    with pytest.raises(AttributeError, match=r"SearchGenerator.*TuneConfig\(search_alg=searcher"):
        _ = search.SearchGenerator
    with pytest.raises(AttributeError, match=r"SearchAlgorithm.*tune\.search\.Searcher"):
        _ = search.SearchAlgorithm
    with pytest.raises(AttributeError, match=r"restore_from_dir.*Tuner\.restore"):
        getattr(BasicVariantGenerator(), "restore_from_dir")  # noqa: B009 - mypy knows it is missing
    told = search.UNDEFINED_METRIC_MODE.format(cls="Own", metric=None, mode="min")
    assert told == "Own needs metric= and mode=; they are None and min"
    assert "Own" in search.UNRESOLVED_SEARCH_SPACE.format(cls="Own", par="param_space")
    assert "{}" in search.UNDEFINED_SEARCH_SPACE.format(cls="Own", space={})
