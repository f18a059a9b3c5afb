"""Tasks of YAHPO Gym's surrogates: networks that were fitted to real trainings (data/hpo).

Three families, each with one task for each data set:

* `lcbench`: 7 numbers; a trial is trained to the end of its 52 epochs, and reports once;
* `curves`: the same networks, with a report for each epoch, so that a scheduler may stop trials;
* `xgboost`: 14 parameters of `rbv2_xgboost`, 8 of which depend on the booster; whole trainings.

A value is the error: 1 - accuracy on the validation set. `onnxruntime` evaluates the networks; it
is imported with the first question. What is known of each task (its best value, the median of
random configurations, the mean time of a training) is in `facts.json`, which
`python -m benchmarks.quality.external.facts` makes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.tasks.space import Axis, Config, Space
from benchmarks.tasks.task import Task

FOLDER = Path(__file__).resolve().parent.parent / "data" / "hpo"
FACTS = FOLDER / "facts.json"
EPOCHS = 52
FIRST = (1, 2, 3, 4)
_LEAST_S = 0.1  # a predicted time may be below 0

_TREES = ("booster", "gbtree", "dart")
_DART = ("booster", "dart")
_E7 = 1096.6331584284585
LCBENCH: Space = [
    Axis(name="batch_size", low=16, high=512, log=True, integer=True),
    Axis(name="learning_rate", low=1e-4, high=0.1, log=True),
    Axis(name="momentum", low=0.1, high=0.99),
    Axis(name="weight_decay", low=1e-5, high=0.1),
    Axis(name="num_layers", low=1, high=5, integer=True),
    Axis(name="max_units", low=64, high=1024, log=True, integer=True),
    Axis(name="max_dropout", low=0.0, high=1.0),
]
XGBOOST: Space = [
    Axis(name="booster", choices=("gblinear", "gbtree", "dart")),
    Axis(name="num.impute.selected.cpo",
         choices=("impute.mean", "impute.median", "impute.hist")),
    Axis(name="nrounds", low=7, high=2981, log=True, integer=True),
    Axis(name="eta", low=1 / _E7, high=1.0, log=True, where=_TREES),
    Axis(name="gamma", low=4.5399929762484854e-05, high=7.38905609893065, log=True, where=_TREES),
    Axis(name="lambda", low=1 / _E7, high=_E7, log=True),
    Axis(name="alpha", low=1 / _E7, high=_E7, log=True),
    Axis(name="subsample", low=0.1, high=1.0),
    Axis(name="max_depth", low=1, high=15, integer=True, where=_TREES),
    Axis(name="min_child_weight", low=2.718281828459045, high=148.4131591025766, log=True,
         where=_TREES),
    Axis(name="colsample_bytree", low=0.01, high=1.0, where=_TREES),
    Axis(name="colsample_bylevel", low=0.01, high=1.0, where=_TREES),
    Axis(name="rate_drop", low=0.0, high=1.0, where=_DART),
    Axis(name="skip_drop", low=0.0, high=1.0, where=_DART),
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """The surrogate in `folder`: one network for the data sets `of`, a categorical input.

    `space` is in the order of the inputs; before and after come `fidelity`'s. `worth` is the
    column of the accuracy, whose greatest value is `whole`, `seconds` that of the time.
    """

    folder: str
    of: str
    space: Space
    about: str
    before: Sequence[float]
    after: Sequence[float]
    worth: int
    whole: float
    seconds: int


FAMILIES: Mapping[str, Family] = {
    "lcbench": Family(
        folder="lcbench", of="OpenML_task_id", space=LCBENCH,
        about="a network on tabular data, by 7 numbers",
        before=(EPOCHS,), after=(), worth=1, whole=100.0, seconds=0,
    ),
    "xgboost": Family(
        folder="rbv2_xgboost", of="task_id", space=XGBOOST,
        about="XGBoost, by 14 parameters, 8 of which depend on the booster",
        before=(), after=(1.0, 1.0), worth=0, whole=1.0, seconds=6,
    ),
}  # fmt: skip


@cache
def _session(folder: str) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(str(FOLDER / folder / "model.onnx"), options)


@cache
def _codes(folder: str) -> dict[str, dict[str, int]]:
    codes: dict[str, dict[str, int]] = json.loads((FOLDER / folder / "encoding.json").read_text())
    return codes


def data_sets(family: str) -> list[str]:
    """Those of its space, by number."""
    known = FAMILIES["lcbench" if family == "curves" else family]
    described = json.loads((FOLDER / known.folder / "config_space.json").read_text())
    choices = {one["name"]: one.get("choices") for one in described["hyperparameters"]}
    return sorted(choices[known.of], key=int)


def predicted(
    family: str, data_set: str, configs: Sequence[Config], epochs: Sequence[int] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Errors and seconds since the beginning, a row each; `epochs` is one for each config."""
    known = FAMILIES[family]
    codes = _codes(known.folder)
    names = [known.of, *(axis.name for axis in known.space if axis.choices)]
    numbers = [axis.name for axis in known.space if not axis.choices]
    categories = np.zeros((len(configs), len(names)), np.int32)
    width = len(known.before) + len(numbers) + len(known.after)
    rows = np.zeros((len(configs), width), np.float32)
    for at, config in enumerate(configs):
        categories[at] = [
            codes[known.of][data_set], *(codes[name][config[name]] for name in names[1:])
        ]  # fmt: skip
        before = (epochs[at],) if epochs and known.before else known.before
        rows[at] = [*before, *(config.get(name, 0.0) for name in numbers), *known.after]
    (answer,) = _session(known.folder).run(None, {"x_cat": categories, "x_cont": rows})
    errors = 1.0 - answer[:, known.worth].astype(float) / known.whole
    return errors, np.maximum(answer[:, known.seconds].astype(float), _LEAST_S)


@cache
def facts() -> dict[str, Any]:
    """For each `family/data set`: `best`, `median`, `mean_s`, and why it is `dropped`, or None."""
    known: dict[str, Any] = json.loads(FACTS.read_text())
    return known


class Trained:
    """The trainings of one data set: each configuration is asked for once.

    A curve's first epochs come with the end, in one call of 0.6 ms, and the rest when it is asked
    for, which takes 3 ms: most trials of a scheduler end early.
    """

    def __init__(self, family: str, data_set: str, *, by_epoch: bool) -> None:
        self._family, self._data_set = family, data_set
        self._first = FIRST if by_epoch else ()
        self._known: dict[tuple[Any, ...], tuple[dict[int, float], float]] = {}

    def end(self, config: Config) -> tuple[float, float]:
        """The last error, and the seconds of the training."""
        errors, seconds = self._of(config)
        return errors[EPOCHS], seconds

    def after(self, epoch: int, config: Config) -> float:
        errors, _ = self._of(config)
        if epoch not in errors:
            rest = range(len(self._first) + 1, EPOCHS)
            found, _ = predicted(self._family, self._data_set, [config] * len(rest), rest)
            errors.update(zip(rest, found.tolist(), strict=True))
        return errors[epoch]

    def _of(self, config: Config) -> tuple[dict[int, float], float]:
        key = tuple(sorted(config.items()))
        if key not in self._known:
            epochs = [*self._first, EPOCHS]
            found, seconds = predicted(
                self._family, self._data_set, [config] * len(epochs), epochs
            )
            errors = dict(zip(epochs, found.tolist(), strict=True))
            self._known[key] = errors, float(seconds[-1])
        return self._known[key]


def surrogate(family: str, data_set: str) -> Task:
    """The task of one data set. Raises KeyError for one that `facts.json` has not."""
    by_epoch = family == "curves"
    source = "lcbench" if by_epoch else family
    known, fact = FAMILIES[source], facts()[f"{family}/{data_set}"]
    trained = Trained(source, data_set, by_epoch=by_epoch)
    return Task(
        name=f"{family}/{data_set}",
        about=f"{known.about} (OpenML {data_set})",
        space=known.space,
        epochs=EPOCHS if by_epoch else 1,
        best=fact["best"],
        middle=fact["median"],
        mean_s=fact["mean_s"],
        begun=0,
        step=partial(_step, trained, by_epoch),
        seconds=partial(_epoch_s, trained, EPOCHS if by_epoch else 1),
    )


def _step(trained: Trained, by_epoch: bool, epoch: int, config: Config) -> tuple[int, float]:
    return epoch + 1, trained.after(epoch + 1, config) if by_epoch else trained.end(config)[0]


def _epoch_s(trained: Trained, epochs: int, config: Config) -> float:
    return trained.end(config)[1] / epochs
