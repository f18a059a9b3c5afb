"""A checked sweep file: the trainable, the space and the settings that it describes."""

from __future__ import annotations

import dataclasses
import inspect
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.experiment.start.short_names import (
    create_scheduler,
    planned,
    scheduler_class,
    searcher_class,
)
from holdfast.experiment.worker.command.trainable import CommandTrainable
from holdfast.experiment.worker.command.words import flat, macros_in
from holdfast.scheduler.searchers.searcher import Searcher, introduce
from holdfast.sweep.reading import MOST_VALUES, Node
from holdfast.trial import space
from holdfast.trial.config import CheckpointConfig, FailureConfig, RunConfig, TuneConfig
from holdfast.trial.metrics import near_text
from holdfast.trial.space import Normal, grid_values

_WANDB = ("value", "values", "distribution", "min", "max", "q", "mu", "sigma", "probabilities")
_OF_LISTS = {"choice": space.choice, "grid_search": space.grid_search}
_WORDS = (*_WANDB, *space.DOMAINS, *_OF_LISTS, "parameters")


def space_of(parameters: Node, *, is_grid: bool) -> dict[str, Any]:
    """The search space. With `is_grid` each list of values is a grid. Raises InvalidConfig."""
    return {name: _parameter(node, is_grid=is_grid) for name, node in parameters.table().items()}


def domain_of(node: Node) -> Any:
    """One domain, or a value. Raises InvalidConfig."""
    return _parameter(node, is_grid=False)


def _parameter(node: Node, *, is_grid: bool) -> Any:
    if not node.is_table:
        if isinstance(node.value, list):
            node.fail(
                "is a list: write {values: [...]} to vary it, or {value: [...]} for the list"
            )
        return node.value
    _check_supported(node.table())
    table = node.table(_WORDS)
    ours = [name for name in table if name in space.DOMAINS or name in _OF_LISTS]
    if "parameters" in table:
        _alone(node, table, "parameters")
        return space_of(table["parameters"], is_grid=is_grid)
    if not ours:
        return _wandb(node, table, is_grid=is_grid)
    _alone(node, table, ours[0])
    if is_grid and ours[0] != "grid_search":
        node.fail(f"{ours[0]} has no grid: with method grid, every parameter has values")
    return _our_domain(ours[0], table[ours[0]])


def _check_supported(table: Mapping[str, Node]) -> None:
    """Refuse what W&B has and this has not, before what belongs to it is unknown here."""
    for name, node in table.items():
        kind = node.value if name == "distribution" else name
        if name in ("distribution", "probabilities") and kind in _MISSING:
            node.fail(f"{kind} is not supported. {_MISSING[kind]}")


def _alone(node: Node, table: Mapping[str, Node], name: str) -> None:
    if len(table) > 1:
        others = ", ".join(other for other in table if other != name)
        node.fail(f"{name} says everything: remove {others}")


def _our_domain(name: str, node: Node) -> Any:
    with node.blamed():
        if name in _OF_LISTS:
            node.items()
            return _OF_LISTS[name](node.plain())
        if node.is_table:
            return space.DOMAINS[name](**node.plain())
        return space.DOMAINS[name](*(item.number() for item in node.items()))


def _wandb(node: Node, table: Mapping[str, Node], *, is_grid: bool) -> Any:
    if not table:
        node.fail("is empty: write value, values, or min and max")
    kind = _distribution(node, table)
    if is_grid and kind not in ("constant", "categorical", "int_uniform"):
        node.fail(f"{kind} has no grid: with method grid, every parameter has values")
    needed, optional = _NEEDS[kind]
    for name, given in table.items():
        if name != "distribution" and name not in (*needed, *optional):
            given.fail(f"does not belong to {kind}, which has {', '.join((*needed, *optional))}")
    if missing := [name for name in needed if name not in table]:
        node.fail(f"{kind} needs {' and '.join(missing)}")
    with node.blamed():
        if kind == "constant":
            return table["value"].plain()
        if kind == "categorical":
            table["values"].items()
            values = table["values"].plain()
            return space.grid_search(values) if is_grid else space.choice(values)
        if is_grid:
            return space.grid_search(_between(*(table[name].whole() for name in _BOUNDS)))
        numbers = {n: g.number() for n, g in table.items() if n != "distribution"}
        return _MAKE[kind](**{_ARGUMENTS.get(name, name): n for name, n in numbers.items()})


def _between(low: int, high: int) -> list[int]:
    """The whole numbers that a grid of int_uniform has, as in W&B."""
    if not low <= high < low + MOST_VALUES:
        raise ValueError(f"{low} to {high} is not a grid of 1 to {MOST_VALUES:,} values")
    return list(range(low, high + 1))


def _distribution(node: Node, table: Mapping[str, Node]) -> str:
    """The distribution that is named, else the one that W&B infers."""
    if (given := table.get("distribution")) is not None:
        return given.choice(*_NEEDS)
    if "value" in table:
        return "constant"
    if "values" in table:
        return "categorical"
    if "min" not in table and "max" not in table:
        node.fail("says neither value, values, nor min and max")
    bounds = [table[name].number() for name in ("min", "max") if name in table]
    are_whole = all(isinstance(bound, int) for bound in bounds)
    return "int_uniform" if are_whole else "uniform"


_BOUNDS = ("min", "max")
_NEEDS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "constant": (("value",), ()),
    "categorical": (("values",), ()),
    **dict.fromkeys(
        ("uniform", "int_uniform", "log_uniform", "log_uniform_values"), (_BOUNDS, ())
    ),
    **dict.fromkeys(("q_uniform", "q_log_uniform", "q_log_uniform_values"), (_BOUNDS, ("q",))),
    "normal": ((), ("mu", "sigma")),
    "q_normal": ((), ("mu", "sigma", "q")),
}
_ARGUMENTS = {"min": "low", "max": "high"}


def _multiples(low: float, high: float, q: float, *, log: bool) -> Any:
    """Multiples of q between the bounds: whole numbers if q is one, as in W&B."""
    if isinstance(q, int) and q > 0:
        wholes = space.qlograndint if log else space.qrandint
        return wholes(math.ceil(low), math.floor(high), q)
    return (space.qloguniform if log else space.quniform)(low, high, q)


# Bounds of log_uniform and q_log_uniform are exponents of e, as in W&B.
_MAKE: Mapping[str, Callable[..., Any]] = {
    "uniform": lambda low, high: space.uniform(low, high),
    "q_uniform": lambda low, high, q=1: _multiples(low, high, q, log=False),
    "int_uniform": lambda low, high: space.randint(low, high + 1),
    "log_uniform": lambda low, high: space.loguniform(math.exp(low), math.exp(high)),
    "log_uniform_values": lambda low, high: space.loguniform(low, high),
    "q_log_uniform": lambda low, high, q=1: _multiples(math.exp(low), math.exp(high), q, log=True),
    "q_log_uniform_values": lambda low, high, q=1: _multiples(low, high, q, log=True),
    "normal": lambda mu=0.0, sigma=1.0: space.randn(mu, sigma),
    "q_normal": lambda mu=0.0, sigma=1.0, q=1: Normal(mean=mu, sd=sigma, q=q),
}
_MISSING: Mapping[str, str] = {
    **dict.fromkeys(
        ("inv_log_uniform", "inv_log_uniform_values"),
        "Use log_uniform_values for the inverse, and compute 1/x in the script",
    ),
    **dict.fromkeys(
        ("log_normal", "q_log_normal"), "Use normal, and compute exp(x) in the script"
    ),
    **dict.fromkeys(("beta", "q_beta"), "Use uniform"),
    **dict.fromkeys(
        ("categorical_w_probabilities", "probabilities"),
        "Repeat a value in values to make it more likely",
    ),
}


# Of W&B, and without a meaning here.
_IGNORED = ("project", "entity")
KNOWN = (
    *("name", "description", "command", "program", "cwd", "env", "parameters", "metric"),
    *("method", "search", "scheduler", "early_terminate", "num_samples", "run_cap"),
    *("max_concurrent", "resources", "stop", "budget", "time_budget_s", "confirm"),
    *("failure", "checkpoint", "metrics", "strict", "grace_s", "storage_path"),
    *("cluster", "verbose", *_IGNORED),
)
# Of W&B, and without a counterpart.
_INSTEAD: Mapping[str, str] = {
    **dict.fromkeys(("job", "image_uri"), "Say with command what a trial runs"),
    "launch": "Say with cluster where trials run",
    "controller": "Remove it: the command that runs the sweep is its controller",
    "target": "Use stop for a trial, num_samples or budget for the sweep",
    "strict": "Remove it: eta says how many trials go on",
}
_METHODS = ("random", "grid", "bayes")
_MODES = {"minimize": "min", "maximize": "max", "min": "min", "max": "max"}
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_UNITS |= {f"{unit}i": 2 ** (10 * power) for power, unit in enumerate("kmgt", 1)}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kmgt]i?|)b?", re.I)
# Above every iteration: a rule of W&B that only has a least iteration stops no trial at the end.
_NO_LIMIT = 10**12
_BANDIT = ("type", "min_iter", "max_iter", "s", "eta")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """The run that a sweep file describes. `notes` are for the user, before the run."""

    trainable: CommandTrainable
    space: Mapping[str, Any]
    tune: TuneConfig
    run: RunConfig
    cluster: str | None = None
    notes: tuple[str, ...] = ()


def sweep_of(file: Node, here: Path) -> Sweep:
    """Check a file that lies in the folder `here`. Raises InvalidConfig, naming the line."""
    table = file.table(KNOWN, _INSTEAD)
    is_grid = "method" in table and table["method"].choice(*_METHODS) == "grid"
    if "parameters" not in table:
        file.fail("parameters is missing: the values that the trials differ in")
    space = space_of(table["parameters"], is_grid=is_grid)
    trainable = _trainable(file, table, here)
    tune = _tune(file, table, space, here, is_grid=is_grid)
    with table.get("search", table.get("method", file)).blamed():
        if isinstance(tune.search_alg, Searcher):
            other = _search(table, here)  # not the one that will run
            introduce(other, tune.metric, tune.mode, space)
    with file.blamed():
        run = RunConfig(
            name=_field(table, "name", Node.text, RunConfig) or _name_of(file, here),
            storage_path=_optional(table, "storage_path", Node.text),
            failure_config=_options(table, "failure", FailureConfig),
            checkpoint_config=_options(table, "checkpoint", CheckpointConfig),
            stop=_bounds(table),
            verbose=_field(table, "verbose", Node.whole, RunConfig),
        )
    return Sweep(
        trainable=trainable,
        space=space,
        tune=tune,
        run=run,
        cluster=_optional(table, "cluster", Node.text),
        notes=_notes(table, trainable, space),
    )


def below(here: Path, path: str) -> str:
    """A path of the file, which is relative to its folder `here`; a URI stays."""
    return path if "://" in path else os.path.normpath(here / os.path.expanduser(path))


def _name_of(file: Node, here: Path) -> str:
    """Of the file without its ending; of its folder, if it is called sweep."""
    stem = Path(file.file).stem
    return here.name if stem == "sweep" and here.name else stem


def _optional(table: Mapping[str, Node], name: str, read: Any) -> Any:
    """The value, or None if it is absent or empty."""
    node = table.get(name)
    return None if node is None or node.value is None else read(node)


def _field(
    table: Mapping[str, Node], name: str, read: Any, kind: type[Any], field: str | None = None
) -> Any:
    """A value for a field of a settings class, which checks it; None if it is absent."""
    value = _optional(table, name, read)
    if value is not None:
        with table[name].blamed():
            kind(**{field or name: value})
    return value


def _notes(
    table: Mapping[str, Node], trainable: CommandTrainable, space: Mapping[str, Any]
) -> tuple[str, ...]:
    ignored = (f"{table[name].where} has no effect here" for name in _IGNORED if name in table)
    names = list(flat(_without_grids(space)))
    return (*ignored, *trainable.notes(names), *macros_in(flat(space)))


# -- the command ----------------------------------------------------------------------------------


def _trainable(file: Node, table: Mapping[str, Node], here: Path) -> CommandTrainable:
    command, program = table.get("command"), _optional(table, "program", Node.text)
    if command is None and program is None:
        file.fail("command is missing: what a trial runs, such as: python train.py ${args}")
    place = command or table["program"]
    with place.blamed():
        return CommandTrainable(
            _words(command),
            program=program,
            here=str(here),
            cwd=_optional(table, "cwd", Node.text),
            env=_texts(table, "env"),
            metrics=_texts(table, "metrics"),
            strict=bool(_optional(table, "strict", Node.flag)),
            must_report="metric" in table,
            grace_s=5.0 if "grace_s" not in table else table["grace_s"].number(),
            resources=_resources(table),
        )


def _words(command: Node | None) -> str | list[str] | None:
    if command is None:
        return None
    if not isinstance(command.value, list):
        return command.text()
    words = [word.plain() for word in command.items()]
    for word, node in zip(words, command.items(), strict=True):
        if isinstance(word, (dict, list)) or word is None or isinstance(word, bool):
            node.fail(f"must be a word, not {node.shown}. Put it in quotes")
    return [str(word) for word in words]


def _texts(table: Mapping[str, Node], name: str) -> dict[str, str]:
    """A table of texts; numbers are texts, too."""
    node = table.get(name)
    if node is None or node.value is None:
        return {}
    found = {}
    for key, item in node.table().items():
        is_number = isinstance(item.value, (int, float)) and not isinstance(item.value, bool)
        found[key] = str(item.value) if is_number or item.value == "" else item.text()
    return found


def _resources(table: Mapping[str, Node]) -> dict[str, float] | None:
    if "resources" not in table:
        return None
    return {
        name: _bytes(node) if name == "memory" else node.number()
        for name, node in table["resources"].table().items()
    }


def _bytes(node: Node) -> float:
    """Bytes, as a number or as text with a unit: 8GB, 512MiB."""
    if not isinstance(node.value, str):
        return node.number()
    found = _SIZE.fullmatch(node.value.strip())
    if found is None:
        node.fail(f"must be a size such as 8GB or 512MiB, not {node.shown}")
    return math.floor(float(found[1]) * _UNITS[found[2].lower()])


def _without_grids(space: Mapping[str, Any]) -> dict[str, Any]:
    """The space, with the names of its parameters only."""
    return {
        name: _without_grids(value)
        if isinstance(value, Mapping) and grid_values(value) is None
        else None
        for name, value in space.items()
    }


# -- the search -----------------------------------------------------------------------------------


def _tune(
    file: Node, table: Mapping[str, Node], space: Mapping[str, Any], here: Path, *, is_grid: bool
) -> TuneConfig:
    metric, mode = _goal(table)
    budget = _field(table, "budget", _time, TuneConfig)
    limit_s = _field(table, "time_budget_s", Node.number, TuneConfig)
    search, scheduler = _search(table, here), _scheduler(table, here)
    plan = None
    if isinstance(search, Searcher):
        named = table["search"].value if "search" in table else None
        with table.get("search", file).blamed():
            found, plan = planned(search, named, space)
        search = found or named  # the run says why it does not use a search that is only named
    usual = None if budget is None and limit_s is None else -1
    if is_grid or plan is not None:
        usual = TuneConfig().num_samples
    samples = _samples(file, table, usual, is_grid=is_grid)
    concurrent = _field(table, "max_concurrent", Node.whole, TuneConfig, "max_concurrent_trials")
    if (search or scheduler) and metric is None:
        file.fail("metric is missing: a search or a scheduler needs {name: ..., goal: minimize}")
    with file.blamed():
        return TuneConfig(
            metric=metric,
            mode=mode,
            num_samples=samples,
            search_alg=search,
            scheduler=scheduler,
            max_concurrent_trials=concurrent,
            time_budget_s=limit_s,
            budget=budget,
            confirm=_field(table, "confirm", Node.whole, TuneConfig) or 0,
        )


def _time(node: Node) -> float | str:
    return node.text() if isinstance(node.value, str) else node.number()


def _goal(table: Mapping[str, Node]) -> tuple[str | None, Any]:
    node = table.get("metric")
    if node is None:
        return None, None
    goal = node.table(("name", "goal", "mode"), _INSTEAD)
    for name in ("name", "goal"):
        if name not in goal and not (name == "goal" and "mode" in goal):
            node.fail(f"{name} is missing: {{name: loss, goal: minimize}}")
    said = goal.get("goal") or goal["mode"]
    return goal["name"].text(), _MODES[said.choice(*_MODES)]


def _samples(file: Node, table: Mapping[str, Node], usual: int | None, *, is_grid: bool) -> int:
    """That of the file, or the `usual` one. Raises InvalidConfig if there is none."""
    given = [table[name] for name in ("num_samples", "run_cap") if name in table]
    if len(given) == 2:
        given[1].fail("num_samples says the same: remove one of them")
    if is_grid and "run_cap" in table:
        given[0].fail("with method grid, every combination runs once: remove run_cap")
    if given:
        with given[0].blamed():
            return TuneConfig(num_samples=given[0].whole()).num_samples
    if usual is None:
        file.fail("num_samples (or run_cap) is missing: how many trials to run")
    return usual


def _search(table: Mapping[str, Node], here: Path) -> Any:
    """A new search algorithm; None for random and grid search."""
    method, search = table.get("method"), table.get("search")
    if search is not None:
        if method is not None:
            method.fail("search says the same: remove one of them")
        return _made(search, searcher_class, here)
    if method is None or method.value != "bayes":
        return None
    with method.blamed():
        return searcher_class("optuna")()


def _scheduler(table: Mapping[str, Node], here: Path) -> Any:
    scheduler, early = table.get("scheduler"), table.get("early_terminate")
    if early is None:
        return None if scheduler is None else _made(scheduler, scheduler_class, here)
    if scheduler is not None:
        early.fail("scheduler says the same: remove one of them")
    return _bandit(early)


def _bandit(early: Node) -> Any:
    """W&B's early_terminate: hyperband, which stops as ASHA does."""
    rule = early.table(_BANDIT, _INSTEAD)
    if "type" not in rule:
        early.fail("type is missing: hyperband")
    rule["type"].choice("hyperband")
    eta = rule["eta"].number() if "eta" in rule else 3
    most = rule["max_iter"].whole() if "max_iter" in rule else _NO_LIMIT
    if "min_iter" in rule:
        least = rule["min_iter"].whole()
    elif "max_iter" in rule and "s" in rule:
        least = max(1, math.floor(most / eta ** rule["s"].whole()))
    else:
        early.fail("needs min_iter, or max_iter and s")
    with early.blamed():
        return create_scheduler("asha", grace_period=least, max_t=most, reduction_factor=eta)


def _made(node: Node, class_named: Any, here: Path) -> Any:
    """`asha`, or `{name: asha, max_t: 81}`; `type` is another word for `name`."""
    options: Mapping[str, Node] = {}
    named = node
    if node.is_table:
        options = {name: item for name, item in node.table().items() if name not in _NAMES}
        words = [item for name, item in node.table().items() if name in _NAMES]
        if len(words) != 1:
            node.fail("name is missing" if not words else "name and type say the same")
        named = words[0]
    with named.blamed():
        kind = class_named(named.text())
    known = [name for name in inspect.signature(kind).parameters if name not in _SET_ELSEWHERE]
    takes_any = "kwargs" in known
    arguments = {}
    for name, item in options.items():
        if name not in known and not takes_any:
            item.fail(
                f"is not an option of {kind.__name__}.{near_text([name], dict.fromkeys(known))} "
                f"It has: {', '.join(known)}"
            )
        arguments[name] = _argument(name, item, here)
    with node.blamed():
        return kind(**arguments)


_NAMES = ("name", "type")
_SET_ELSEWHERE = ("metric", "mode", "space", "points_to_evaluate", "evaluated_rewards")


def _argument(name: str, node: Node, here: Path) -> Any:
    """An option of a scheduler or a search. Mutations of a population are parameters."""
    if name == "hyperparam_mutations":
        return {key: _mutation(item) for key, item in node.table().items()}
    if name == "warm_start":
        return [below(here, item.text()) for item in node.items()]
    return node.plain()


def _mutation(node: Node) -> Any:
    return node.plain() if isinstance(node.value, list) else domain_of(node)


# -- the run --------------------------------------------------------------------------------------


def _options(table: Mapping[str, Node], name: str, kind: type[Any]) -> Any:
    """A settings object from a table of its fields."""
    node = table.get(name)
    if node is None or node.value is None:
        return kind()
    known: Sequence[str] = [field.name for field in dataclasses.fields(kind)]
    given = node.table([one for one in known if not one.startswith("_")])
    with node.blamed():
        return kind(**{key: item.plain() for key, item in given.items()})


def _bounds(table: Mapping[str, Node]) -> dict[str, float] | None:
    node = table.get("stop")
    if node is None or node.value is None:
        return None
    return {
        name: item.value if isinstance(item.value, bool) else item.number()
        for name, item in node.table().items()
    }
