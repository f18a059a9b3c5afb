"""`put` and `get`: objects that trials share, and their references in a search space and after a
restore."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pyarrow as pa
import pytest

import holdfast
from holdfast import train, tune
from holdfast.experiment.user_objects.pickling import NotPicklable
from holdfast.experiment.worker import objects as worker_objects
from holdfast.runtime import objects as shared_objects
from holdfast.trial.errors import TuneError
from holdfast.tune.search import Searcher

NUMBERS = np.arange(50_000, dtype=np.float64)


@pytest.fixture(autouse=True)
def objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of objects; it is empty afterwards."""
    folder = tmp_path / "objects"
    monkeypatch.setenv(shared_objects.FOLDER, str(folder))
    yield folder
    holdfast.shutdown()
    assert not folder.exists() or list(folder.iterdir()) == []


class LargeModel:
    def __init__(self, model_id: int) -> None:
        self.model_id = model_id
        self.weights = NUMBERS * model_id


def use_the_model(config: dict[str, Any]) -> None:
    model = holdfast.get(config["model_ref"])
    assert isinstance(model, LargeModel)
    tune.report(
        {
            "model_id": model.model_id,
            "sum": float(model.weights.sum()),
            "is_a_view": not model.weights.flags.owndata and not model.weights.flags.writeable,
        }
    )


def test_a_grid_of_references_gives_each_trial_its_object(fit: Any) -> None:
    refs = [holdfast.put(LargeModel(1)), holdfast.put(LargeModel(2))]
    results = fit(use_the_model, {"model_ref": tune.grid_search(refs)})
    assert not results.errors
    assert [result.metrics["model_id"] for result in results] == [1, 2]
    assert [result.metrics["sum"] for result in results] == [NUMBERS.sum(), 2 * NUMBERS.sum()]
    assert all(result.metrics["is_a_view"] for result in results)
    assert [result.config["model_ref"] for result in results] == refs


def test_references_stand_anywhere_in_a_space_and_in_with_parameters(fit: Any) -> None:
    def add(config: dict[str, Any], more: holdfast.ObjectRef) -> None:
        found = holdfast.get([config["fixed"], config["deep"]["list"][1], config["chosen"], more])
        made = holdfast.get(config["made"])
        tune.report({"sum": sum(found) + made})

    one, two, three, four, five = (holdfast.put(10**n) for n in range(5))
    space = {
        "fixed": one,
        "deep": {"list": ["text", two]},
        "chosen": tune.choice([three]),
        "made": tune.sample_from(lambda _: five),
    }
    results = fit(tune.with_parameters(add, more=four), space)
    assert not results.errors
    assert results[0].metrics["sum"] == 11111


def test_ranks_of_a_trainer_share_what_its_config_refers_to(tmp_path: Path) -> None:
    def loop(config: dict[str, Any]) -> None:
        train.report({"sum": float(holdfast.get(config["data"])["x"].sum())})

    trainer = train.DataParallelTrainer(
        loop,
        train_loop_config={"data": holdfast.put({"x": NUMBERS})},
        scaling_config=train.ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.5}),
        run_config=train.RunConfig(storage_path=str(tmp_path / "results"), verbose=0),
    )
    metrics = trainer.fit().metrics
    assert metrics is not None
    assert metrics["sum"] == NUMBERS.sum()


def test_an_arrow_table_is_shared_too(fit: Any) -> None:
    def count(config: dict[str, Any]) -> None:
        before = pa.total_allocated_bytes()
        table = holdfast.get(config["table"])
        allocated = pa.total_allocated_bytes() - before
        tune.report({"rows": table.num_rows, "allocated": allocated})

    metrics = fit(count, {"table": holdfast.put(pa.table({"x": NUMBERS}))})[0].metrics
    assert metrics["rows"] == len(NUMBERS)
    assert metrics["allocated"] < 1000


def test_what_its_readers_will_import_is_imported_before_they_are_forked(fit: Any) -> None:
    def look(config: dict[str, Any]) -> None:
        tune.report({"there": "numpy" in sys.modules})

    assert fit(look, {"of": "no object"})[0].metrics["there"] is False
    data = holdfast.put({"inside": [NUMBERS]})
    assert fit(look, {"data": data})[0].metrics["there"] is True


def test_nothing_of_an_object_is_in_the_experiment_but_its_place(fit: Any, tmp_path: Path) -> None:
    secret = b"only in memory, and on no account in an experiment"
    fit(lambda config: None, {"ref": holdfast.put(secret), "n": tune.grid_search([1, 2])})
    written = [path for path in (tmp_path / "results").rglob("*") if path.is_file()]
    assert not [path for path in written if secret in path.read_bytes()]
    # Only in the user's own param_space, which is a separate field.
    assert {path.name for path in written if b"holdfast.experiment" in path.read_bytes()} <= {
        "tuner.pkl"
    }


def test_a_reference_is_small_and_equal_to_its_copies() -> None:
    ref = holdfast.put(NUMBERS)
    assert len(pickle.dumps(ref)) < 400
    copy = cloudpickle.loads(cloudpickle.dumps({"nested": [ref]}))["nested"][0]
    assert copy == ref
    assert {copy: 1}[ref] == 1
    assert ref.hex() in repr(ref)
    np.testing.assert_array_equal(holdfast.get(copy), NUMBERS)


def test_a_value_may_hold_references() -> None:
    inner = holdfast.put(7)
    assert holdfast.get(holdfast.get(holdfast.put({"inner": inner}))["inner"]) == 7


# -- large values of with_parameters ------------------------------------------------------------

LARGE = np.arange(2_000_000, dtype=np.float64)


def doubles_its_own(config: dict[str, Any], large: Any, small: Any) -> None:
    large *= 2  # as a script may that knows of no other trial
    tune.report({"sum": float(large.sum()), "small": small})
    if config["flag"] and not Path(config["flag"]).exists():
        Path(config["flag"]).touch()
        raise RuntimeError("not this time")


def test_a_large_value_is_in_no_file_of_the_experiment_and_each_trial_has_its_own(
    fit: Any, tmp_path: Path
) -> None:
    bound = tune.with_parameters(doubles_its_own, large=LARGE, small="text")
    results = fit(bound, {"flag": "", "n": tune.grid_search([1, 2])}, name="run")
    assert not results.errors
    found = [(result.metrics["sum"], result.metrics["small"]) for result in results]
    assert found == [(2 * LARGE.sum(), "text")] * 2
    assert LARGE[1] == 1.0
    files = [path for path in (tmp_path / "results").rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < LARGE.nbytes / 10


def test_a_restore_takes_a_large_value_from_the_script_and_says_so_if_it_is_gone(
    fit: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path, space = str(tmp_path / "results" / "run"), {"flag": str(tmp_path / "flag")}
    bound = tune.with_parameters(doubles_its_own, large=LARGE, small=1)
    assert len(fit(bound, space, name="run").errors) == 1
    assert "holdfast resume" not in capfd.readouterr().err  # it would not have the value
    holdfast.shutdown()
    with pytest.raises(TuneError, match=r"ObjectLost: .*pass restore\(\) the trainable"):
        tune.Tuner.restore(path, resume_errored=True)
    again = tune.with_parameters(doubles_its_own, large=LARGE, small=1)
    results = tune.Tuner.restore(path, again, resume_errored=True).fit()
    assert not results.errors
    assert (results[0].metrics or {})["sum"] == 2 * LARGE.sum()


# -- on a restore -------------------------------------------------------------------------------


def fail_once(config: dict[str, Any]) -> None:
    model = holdfast.get(config["model_ref"])
    flag = Path(config["flag"])
    if not flag.exists():
        flag.touch()
        raise RuntimeError("not this time")
    tune.report({"model_id": model.model_id})


def begun(fit: Any, tmp_path: Path) -> tuple[str, dict[str, Any]]:
    """An experiment of one trial that failed, after which its objects are gone."""
    space = {"flag": str(tmp_path / "flag"), "model_ref": holdfast.put(LargeModel(3))}
    results = fit(fail_once, space, name="run")
    assert len(results.errors) == 1
    holdfast.shutdown()
    return str(tmp_path / "results" / "run"), space


def test_a_restore_that_is_not_given_them_says_which_before_a_trial_runs(
    fit: Any, tmp_path: Path
) -> None:
    path, _ = begun(fit, tmp_path)
    tuner = tune.Tuner.restore(path, fail_once, resume_errored=True)
    with pytest.raises(
        holdfast.ObjectLost, match=r"model_ref of param_space: .*shutdown.*param_space=\.\.\."
    ):
        tuner.fit()
    assert len(tuner.get_results().errors) == 1  # existing results can still be read
    again = {"flag": str(tmp_path / "flag"), "model_ref": holdfast.put(LargeModel(3))}
    tuner = tune.Tuner.restore(path, fail_once, resume_errored=True, param_space=again)
    assert not tuner.fit().errors


class Second(Searcher):
    """Suggests the second model, once."""

    asked = False

    def set_search_properties(
        self, metric: str | None, mode: str | None, config: Any, **spec: Any
    ) -> bool:
        self.model = config["model_ref"].categories[1]
        return True

    def suggest(self, trial_id: str) -> Any:
        if self.asked:
            return self.FINISHED
        self.asked = True
        return {"model_ref": self.model}


def test_a_reference_that_a_search_has_chosen_is_given_again_too(fit: Any, tmp_path: Path) -> None:
    def space() -> dict[str, Any]:
        models = [holdfast.put(LargeModel(n)) for n in (1, 2)]
        return {"model_ref": tune.choice(models), "flag": str(tmp_path / "flag")}

    config = tune.TuneConfig(search_alg=Second(), metric="model_id", mode="max")
    assert len(fit(fail_once, space(), config, name="run").errors) == 1
    journal = tmp_path / "results" / "run" / "journal"
    assert not [path for path in journal.iterdir() if b"holdfast.exp" in path.read_bytes()]
    holdfast.shutdown()
    path = str(tmp_path / "results" / "run")
    tuner = tune.Tuner.restore(path, fail_once, resume_errored=True, param_space=space())
    assert (tuner.fit()[0].metrics or {})["model_id"] == 2


def test_what_is_finished_is_restored_without_its_objects(fit: Any, tmp_path: Path) -> None:
    fit(use_the_model, {"model_ref": holdfast.put(LargeModel(1))}, name="run")
    holdfast.shutdown()
    results = tune.Tuner.restore(str(tmp_path / "results" / "run"), use_the_model).fit()
    assert (results[0].metrics or {})["model_id"] == 1


def test_a_trainable_bound_to_a_lost_object_is_refused(fit: Any, tmp_path: Path) -> None:
    def train_on(config: dict[str, Any], data: holdfast.ObjectRef) -> None:
        tune.report({"sum": holdfast.get(data)})

    bound = tune.with_parameters(train_on, data=holdfast.put(5))
    holdfast.shutdown()
    with pytest.raises(holdfast.ObjectLost, match=r"of the trainable: .*with_parameters"):
        fit(bound)


def test_a_trainer_resumes_with_the_references_of_its_new_config(tmp_path: Path) -> None:
    def loop(config: dict[str, Any]) -> None:
        data = holdfast.get(config["data"])
        if data < 0:
            raise RuntimeError("bad data")
        train.report({"data": data})

    storage = tmp_path / "results"
    trainer = train.DataParallelTrainer(
        loop,
        train_loop_config={"data": holdfast.put(-1)},
        run_config=train.RunConfig(storage_path=str(storage), name="run", verbose=0),
    )
    with pytest.raises(train.TrainingFailedError):
        trainer.fit()
    holdfast.shutdown()
    with pytest.raises(holdfast.ObjectLost, match="train_loop_config/data"):
        train.DataParallelTrainer.restore(str(storage / "run"), loop).fit()
    restored = train.DataParallelTrainer.restore(
        str(storage / "run"), loop, {"data": holdfast.put(1)}
    )
    assert (restored.fit().metrics or {})["data"] == 1


# -- where they are put, and what is refused ----------------------------------------------------


def test_what_a_trial_puts_lives_as_long_as_its_worker(fit: Any, objects: Path) -> None:
    def puts(config: dict[str, Any]) -> None:
        ref = holdfast.put(NUMBERS)
        tune.report({"sum": float(holdfast.get(ref).sum()), "ref": str(Path(ref.path).exists())})

    metrics = fit(puts)[0].metrics
    assert metrics["sum"] == NUMBERS.sum()
    assert not list(objects.rglob("*"))


def test_the_debug_mode_shares_them_within_the_process(fit: Any) -> None:
    holdfast.init(local_mode=True)
    results = fit(use_the_model, {"model_ref": holdfast.put(LargeModel(4))})
    assert results[0].metrics["model_id"] == 4


def test_threads_may_put_at_once() -> None:
    refs: list[holdfast.ObjectRef] = []
    threads = [threading.Thread(target=lambda: refs.append(holdfast.put(1))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert holdfast.get(refs) == [1] * 8
    assert len({ref.hex() for ref in refs}) == 8


def in_a_child(ref: holdfast.ObjectRef, found: Any) -> None:
    own = holdfast.put("of the child")
    both = holdfast.get([ref, own])
    holdfast.shutdown()
    found.put((both, os.path.exists(own.path)))


def test_a_forked_process_of_the_users_reads_them_and_removes_only_its_own() -> None:
    ref = holdfast.put("of the parent")
    context = multiprocessing.get_context("fork")
    found = context.SimpleQueue()
    child = context.Process(target=in_a_child, args=(ref, found))
    child.start()
    assert found.get() == (["of the parent", "of the child"], False)
    child.join()
    assert holdfast.get(ref) == "of the parent"


def test_a_value_that_cannot_be_pickled_is_refused_by_its_part(objects: Path) -> None:
    with pytest.raises(NotPicklable, match=r"the value\['lock'\] is a lock and cannot be pickled"):
        holdfast.put({"data": NUMBERS, "lock": threading.Lock()})
    assert not objects.exists()


def test_references_are_not_put_and_values_are_not_got() -> None:
    ref = holdfast.put(1)
    with pytest.raises(TypeError, match="is already a reference"):
        holdfast.put(ref)
    with pytest.raises(TypeError, match=r"takes a reference of put"):
        holdfast.get("a text")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"takes a reference of put"):
        holdfast.get([ref, 1])  # type: ignore[list-item]


def test_a_full_disk_refuses_the_object_and_keeps_the_others(
    objects: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = holdfast.put(1)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", full)
        with pytest.raises(
            holdfast.ObjectStoreFull, match=rf"no room for this ndarray: .*{shared_objects.FOLDER}"
        ):
            holdfast.put(NUMBERS)
    assert [path.name for path in objects.rglob("*") if path.is_file()] == [first.hex()]
    assert holdfast.get([first, holdfast.put(2)]) == [1, 2]


def test_a_reference_of_another_machine_says_so() -> None:
    ref = replace(holdfast.put(1), boot="another", path="/nowhere")
    with pytest.raises(holdfast.ObjectLost, match="on another machine"):
        holdfast.get(ref)


def test_a_damaged_object_is_lost_and_not_half_there() -> None:
    ref = holdfast.put(NUMBERS)
    os.truncate(ref.path, 1000)
    with pytest.raises(holdfast.ObjectLost, match="not a complete object"):
        holdfast.get(ref)


def test_a_node_without_the_scripts_folder_reads_the_copy_that_it_was_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = holdfast.put({"rows": np.arange(5)})
    (tmp_path / ref.id).write_bytes(Path(ref.path).read_bytes())
    there = replace(ref, path=str(tmp_path / "of the controller"))
    monkeypatch.setattr(worker_objects, "_copies", [])
    with pytest.raises(holdfast.ObjectLost):
        holdfast.get(there)
    worker_objects.use_copies(str(tmp_path))
    assert holdfast.get(there)["rows"].tolist() == [0, 1, 2, 3, 4]
    assert holdfast.get(ref)["rows"].tolist() == [0, 1, 2, 3, 4]
    late = replace(there, id="0123456789abcdef")
    with pytest.raises(holdfast.ObjectLost, match=r"when fit\(\) began. put\(\) the value before"):
        holdfast.get(late)
