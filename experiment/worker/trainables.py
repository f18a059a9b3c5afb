"""Trainables: the base of classes, and what can be bound to a class or function: parameters,
resources, a checkpoint to start from, exports."""

from __future__ import annotations

import functools
import inspect
import json
import math
import os
import pickle
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Protocol, cast, runtime_checkable

from holdfast.compat import ray_path
from holdfast.compat.advice import explains_call
from holdfast.dataclass import dataclass
from holdfast.experiment.user_objects.pickling import PARAMETERS
from holdfast.experiment.worker.session import running
from holdfast.plain_numbers import is_count
from holdfast.runtime.fleet.facts import node_ip
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.trial.errors import InvalidConfig, TuneError
from holdfast.trial.resources import PlacementGroupFactory, request

# Holds the dict that save_checkpoint() may return instead of writing files.
STATE_FILE = "trainable_state.pkl"
# What `get_auto_filled_metrics` returns before the first iteration.
_KNOWN_BEFORE = ("trial_id", "date", "timestamp", "pid", "hostname", "node_ip", "config")
PROGRESS_FILE: Final = ".trainable.json"


class SavedCheckpoint(Checkpoint):
    """The checkpoint that `Trainable.save` has written. It is also a path (`os.fspath`), and has
    itself as `checkpoint` and the last result as `metrics`, as in Ray."""

    metrics: Mapping[str, Any] = MappingProxyType({})

    @property
    def checkpoint(self) -> Checkpoint:
        return self

    def __fspath__(self) -> str:
        return self.path


_OLDER: Final = {
    "_iteration": "training_iteration",
    "_time_total": "time_total_s",
    "_timesteps_total": "timesteps_total",
    "_episodes_total": "episodes_total",
}


class Trainable:
    """Base class: `setup` once, `step` for each iteration, `save_checkpoint` and
    `load_checkpoint`.

    Outside a trial it works step by step: `train()`, `save()`, `restore()`, `stop()`.
    """

    def __init__(self, config: dict[str, Any] | None = None, storage: Any = None) -> None:
        self.config: dict[str, Any] = dict(config or {})
        self._counts = self._restored_at = StepCounts()
        self._last_result: dict[str, Any] | None = None
        self.setup(dict(self.config))

    def __getattr__(self, name: str) -> Any:
        """Attributes of Ray's class that classes of 2019 to 2023 read."""
        if name not in _OLDER:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self._counts, _OLDER[name])

    # -- for the subclass ------------------------------------------------------------------------

    def setup(self, config: dict[str, Any]) -> None:
        """Prepare to train with `config`."""

    def step(self) -> dict[str, Any]:
        """Do one iteration and return its metrics; `{"done": True}` among them ends the trial."""
        raise NotImplementedError(f"{type(self).__name__} must define step()")

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any] | None:
        """Write the state into `checkpoint_dir`, or return it as a dict."""
        raise NotImplementedError(f"{type(self).__name__} must define save_checkpoint()")

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Load the state from the directory, or from the dict that `save_checkpoint` returned."""
        raise NotImplementedError(f"{type(self).__name__} must define load_checkpoint()")

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Start again with `new_config` in the same object. Return False if that is not
        possible."""
        return False

    def cleanup(self) -> None:
        """Release what `setup` acquired; called once at the end."""

    def log_result(self, result: dict[str, Any]) -> None:
        """Called in the worker with each result before it is reported."""

    def _export_model(self, export_formats: list[str], export_dir: str) -> dict[str, str]:
        """Write the model to `export_dir` in each format; return the formats with their paths."""
        return {}

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> Any:
        """The resources that a trial with `config` needs; None for one CPU."""
        return None

    @classmethod
    def resource_help(cls, config: dict[str, Any]) -> str:
        """A text about the resources of a trial with `config`."""
        return ""

    # -- facts -----------------------------------------------------------------------------------

    @property
    def iteration(self) -> int:
        """Iterations done, over all attempts."""
        return self._counts.training_iteration

    @property
    def training_iteration(self) -> int:
        """The same as `iteration`."""
        return self._counts.training_iteration

    @property
    def trial_id(self) -> str:
        """The id of the trial; "default" outside a trial."""
        session = running()
        return session.assignment.trial_id if session else "default"

    @property
    def trial_name(self) -> str:
        """The name of the trial; outside a trial the name of the class."""
        session = running()
        return session.assignment.trial_name if session else type(self).__name__

    @property
    def logdir(self) -> str:
        """The trial's directory; outside a trial the working directory."""
        session = running()
        return str(session.trial_dir) if session else os.getcwd()

    @property
    def trial_resources(self) -> Any:
        """The resources of the trial, a `PlacementGroupFactory`; None outside a trial."""
        session = running()
        return session.assignment.resources if session else None

    def get_config(self) -> dict[str, Any]:
        """The config of the trial: the dict itself, not a copy."""
        return self.config

    # -- for those who drive it ------------------------------------------------------------------

    def train(self) -> dict[str, Any]:
        """Do one iteration. Returns the result of `step` with `training_iteration`, times
        (seconds) and `done`; outside a trial also with `get_auto_filled_metrics()`.

        `timesteps_this_iter` and `episodes_this_iter` are added up to `timesteps_total` and
        `episodes_total`.
        """
        began = time.perf_counter()
        result = self.step()
        if not isinstance(result, dict):
            raise TuneError(
                f"{type(self).__name__}.step() must return a dict of metrics, not {result!r:.80}"
            )
        elapsed = time.perf_counter() - began
        self._counts = self._counts.after(result, elapsed)
        result = {
            **({} if self.is_actor() else self.get_auto_filled_metrics()),
            **self._counts.known(),
            "time_this_iter_s": elapsed,
            "done": False,
            **result,
        }
        self.log_result(result)
        self._last_result = result
        return result

    def train_buffered(
        self, buffer_time_s: float, max_buffer_length: int = 1000
    ) -> list[dict[str, Any]]:
        """The results of `train()`, called for `buffer_time_s`, at most `max_buffer_length` times
        and until a result says `done` or `should_checkpoint`."""
        until, results = time.monotonic() + buffer_time_s, [self.train()]
        while (
            time.monotonic() < until
            and len(results) < max_buffer_length
            and not (results[-1]["done"] or results[-1].get("should_checkpoint"))
        ):
            results.append(self.train())
        return results

    def get_auto_filled_metrics(
        self,
        now: datetime | None = None,
        time_this_iter: float | None = None,
        timestamp: int | None = None,
        debug_metrics_only: bool = False,
    ) -> dict[str, Any]:
        """The facts that are in each row besides the user's metrics; with `debug_metrics_only`
        those that are known before the first iteration."""
        now = now or datetime.now().astimezone()
        filled = {
            "trial_id": self.trial_id,
            "date": now.strftime("%Y-%m-%d_%H-%M-%S"),
            "timestamp": timestamp or int(now.timestamp()),
            "time_this_iter_s": time_this_iter,
            "time_total_s": self._counts.time_total_s,
            "pid": os.getpid(),
            "hostname": os.uname().nodename,
            "node_ip": node_ip(),
            "config": self.config,
            "time_since_restore": self._counts.time_total_s - self._restored_at.time_total_s,
            "iterations_since_restore": self.iteration - self._restored_at.training_iteration,
        }
        return {name: filled[name] for name in _KNOWN_BEFORE} if debug_metrics_only else filled

    def get_state(self) -> dict[str, Any]:
        """The counts and the last result, by the names that Ray uses."""
        counts = self._counts
        return {
            "iteration": counts.training_iteration,
            "timesteps_total": counts.timesteps_total,
            "time_total": counts.time_total_s,
            "episodes_total": counts.episodes_total,
            "last_result": self._last_result,
        }

    def get_current_ip_pid(self) -> tuple[str, int]:
        """The address of this machine, and the id of this process."""
        return node_ip(), os.getpid()

    def is_actor(self) -> bool:
        """True if a trial runs it, in a worker."""
        return running() is not None

    def save(self, checkpoint_dir: str | None = None) -> SavedCheckpoint:
        """Write a checkpoint into a directory (a new temporary one by default)."""
        import tempfile

        directory = checkpoint_dir or tempfile.mkdtemp(prefix="holdfast-")
        os.makedirs(directory, exist_ok=True)
        state = self.save_checkpoint(directory)
        if isinstance(state, dict):
            with open(os.path.join(directory, STATE_FILE), "wb") as file:
                pickle.dump(state, file)
        self._counts.write(directory)
        saved = SavedCheckpoint.from_directory(directory)
        saved.metrics = dict(self._last_result or {})
        return saved

    def export_model(
        self, export_formats: Sequence[str] | str, export_dir: str | None = None
    ) -> dict[str, str]:
        """Call `_export_model` with a list of formats and a directory, by default `logdir`."""
        formats = [export_formats] if isinstance(export_formats, str) else list(export_formats)
        return self._export_model(formats, export_dir or self.logdir)

    def restore(self, checkpoint_path: Checkpoint | str | os.PathLike[str]) -> None:
        """Load the state of a checkpoint that `save` made, and its `iteration`."""
        path = checkpoint_path
        given = path if isinstance(path, Checkpoint) else Checkpoint(path)
        with given.as_directory() as directory:
            self._counts = self._restored_at = self._counts.read(directory)
            state = Path(directory, STATE_FILE)
            if state.exists():
                session = running()
                if session is not None and not session.job.trusted:
                    raise TuneError(
                        f"the checkpoint {given.path} holds a pickled dict, but trusted=False "
                        f"unpickles nothing: have save_checkpoint() write files, or trust the "
                        f"experiment's folder"
                    )
                # The user's own object, written by their save_checkpoint() above.
                self.load_checkpoint(pickle.loads(state.read_bytes()))
            else:
                self.load_checkpoint(directory)

    def begin_at(self, iteration: int, time_total_s: float) -> None:
        """Continue counting from a restored checkpoint's iteration and training time."""
        self._counts = self._restored_at = replace(
            self._counts, training_iteration=iteration, time_total_s=time_total_s
        )

    def reset(self, new_config: dict[str, Any], storage: Any = None) -> bool:
        """Call `reset_config` and, on success, reset the counts for a new trial."""
        if not self.reset_config(new_config):
            return False
        self.config = dict(new_config)
        self._counts = self._restored_at = StepCounts()
        return True

    def stop(self) -> None:
        """Call `cleanup`."""
        self.cleanup()


def validate_save_restore(
    trainable_cls: type[Trainable], config: dict[str, Any] | None = None, num_gpus: float = 0
) -> bool:
    """Train an object of the class in this process, save it, and continue in another object.

    Returns True. `num_gpus` has no effect. Raises what the methods of the class raise, and
    TuneError if the second object does not continue after the first one's iterations.
    """
    import tempfile

    with tempfile.TemporaryDirectory(prefix="holdfast-") as folder:
        objects = [trainable_cls(dict(config or {})) for _ in range(2)]
        try:
            for _ in range(3):
                objects[0].train()
            objects[1].restore(objects[0].save(folder))
            found = objects[1].train()["training_iteration"]
        finally:
            for one in objects:
                one.stop()
    if found != 4:
        raise TuneError(
            f"{trainable_cls.__name__} was saved after iteration 3, and its next one is {found}: "
            f"step() must not report a training_iteration of its own"
        )
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCounts:
    """The progress of a class trainable: the iterations, the seconds of training, and the steps
    and episodes of those iterations whose results say how many they had (None: none did)."""

    training_iteration: int = 0
    time_total_s: float = 0.0
    timesteps_total: int | None = None
    episodes_total: int | None = None

    def after(self, result: Mapping[str, Any], elapsed_s: float) -> StepCounts:
        """The counts after one more iteration, which had this result."""
        return StepCounts(
            training_iteration=self.training_iteration + 1,
            time_total_s=self.time_total_s + elapsed_s,
            timesteps_total=_sum(self.timesteps_total, result.get("timesteps_this_iter")),
            episodes_total=_sum(self.episodes_total, result.get("episodes_this_iter")),
        )

    def known(self) -> dict[str, Any]:
        """The counts for a result, without those that are None."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def write(self, directory: str) -> None:
        """Add them to a checkpoint."""
        Path(directory, PROGRESS_FILE).write_text(json.dumps(self.known()))

    def read(self, directory: str) -> StepCounts:
        """Those of a checkpoint; these, for one of a release that did not store them."""
        try:
            found = json.loads(Path(directory, PROGRESS_FILE).read_text())
        except (OSError, ValueError, RecursionError):
            return self
        match found:
            case {
                "training_iteration": int(known),
                "time_total_s": float() | int() as seconds,
            } if known >= 0 and math.isfinite(seconds):
                return StepCounts(
                    training_iteration=known,
                    time_total_s=float(seconds),
                    timesteps_total=_count(found.get("timesteps_total")),
                    episodes_total=_count(found.get("episodes_total")),
                )
        return self


def _sum(total: int | None, more: object) -> int | None:
    return total if _count(more) is None else (total or 0) + (_count(more) or 0)


def _count(value: object) -> int | None:
    return value if is_count(value) and value >= 0 else None


_RESOURCES = "holdfast_resources"
_START = "holdfast_start"
_EXPORTS = "holdfast_exports"
_IN_MEMORY = "holdfast_in_memory"


@runtime_checkable
class SupportsAsTrainable(Protocol):
    """A trainer: an object with its own trainable."""

    def as_trainable(self) -> Any: ...


_registered: dict[str, Any] = {}


def register_trainable(name: str, trainable: Any, warn: bool = True) -> None:
    """Register `trainable` for `Tuner(name)` in this process. `warn` has no effect.

    Raises InvalidConfig unless it is a function or a Trainable subclass.
    """
    check_trainable(trainable)
    _registered[name] = trainable


def find_trainable(trainable: Any) -> Any:
    """The function or class that a user passed or named. Raises InvalidConfig."""
    if isinstance(trainable, str):
        if trainable not in _registered:
            known = ", ".join(sorted(_registered)) or "none"
            raise InvalidConfig(
                f"no trainable is registered as {trainable!r} (registered: {known}): call "
                f"register_trainable({trainable!r}, ...) first"
                + ". RLlib's algorithms need Ray itself: holdfast has no reinforcement learning"
                * ray_path.is_active()
            )
        trainable = _registered[trainable]
    if isinstance(trainable, SupportsAsTrainable):
        trainable = trainable.as_trainable()
    return check_trainable(trainable)


def can_save(trainable: Any) -> bool:
    """True if trials can save themselves on request: those of a class with `save_checkpoint`."""
    is_class = isinstance(trainable, type) and issubclass(trainable, Trainable)
    return is_class and trainable.save_checkpoint is not Trainable.save_checkpoint


def check_class(trainable: type, *, saves: bool) -> None:
    """Raises InvalidConfig unless the Trainable class defines what its trials call; `saves`: they
    make checkpoints."""
    name, kind = trainable.__qualname__, cast(type[Trainable], trainable)
    if kind.step is Trainable.step and kind.train is Trainable.train:
        old = [f"{one}() is {new}() now" for one, new in _NEW_NAMES.items() if hasattr(kind, one)]
        raise InvalidConfig(f"{name} must define step(){': ' * bool(old)}{', '.join(old)}")
    if saves and not can_save(trainable):
        raise InvalidConfig(
            f"checkpoint_frequency and checkpoint_at_end need {name}.save_checkpoint() and "
            f"load_checkpoint(): define them, or leave these settings out"
        )
    for method in vars(Trainable):
        check_runs(getattr(kind, method), f"{name}.{method}")


def check_runs(function: Any, name: str = "") -> None:
    """Raises InvalidConfig for an async function, whose call runs nothing."""
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidConfig(f"{name or name_of(function)}() {_ASYNC}")


def check_has_run(answer: Any) -> None:
    """Raises InvalidConfig if the call that returned `answer` has only prepared to run."""
    if inspect.isawaitable(answer) or inspect.isasyncgen(answer) or inspect.isgenerator(answer):
        name = getattr(answer, "__qualname__", type(answer).__name__)
        if not inspect.isasyncgen(answer) and hasattr(answer, "close"):
            answer.close()  # otherwise Python warns that nothing has awaited it
        raise InvalidConfig(f"{name}() {_ASYNC}")


_ASYNC = (
    "is async or a generator, which nothing would run here: write an ordinary function that runs "
    "it, such as `def train(config): asyncio.run(train_async(config))`"
)
_NEW_NAMES = {
    "_train": "step",
    "_setup": "setup",
    "_save": "save_checkpoint",
    "_restore": "load_checkpoint",
}


def check_trainable(trainable: Any) -> Any:
    """Raises InvalidConfig, saying what is wrong, unless it can run as a trial."""
    if isinstance(trainable, type):
        if not issubclass(trainable, Trainable):
            raise InvalidConfig(
                f"the class {trainable.__qualname__} must be a subclass of tune.Trainable"
            )
        return trainable
    if not callable(trainable):
        raise InvalidConfig(
            f"a trainable is a function of one config dict or a Trainable subclass, "
            f"not {trainable!r:.100}"
        )
    check_runs(trainable)
    try:
        inspect.signature(trainable).bind({})
    except TypeError as error:
        raise InvalidConfig(
            f"the trainable {name_of(trainable)}{inspect.signature(trainable)} must take one "
            f"argument, the config dict: {error}"
        ) from error
    except ValueError:
        # A builtin without a signature: only calling it will show.
        return trainable
    return trainable


def name_of(trainable: Any) -> str:
    """The trainable's name in trial names."""
    name = getattr(trainable, "__name__", None)
    if name is None and isinstance(trainable, functools.partial):
        return name_of(trainable.func)
    found = str(name or type(trainable).__name__)
    return "lambda" if found == "<lambda>" else found


def module_of(trainable: Any) -> str:
    """The module that a process imports to get the trainable; "" if it does not say."""
    function = getattr(trainable, "function", trainable)  # of a trainer
    if isinstance(function, functools.partial):
        return module_of(function.func)
    return str(getattr(function, "__module__", None) or "")


def with_parameters(trainable: Any, **kwargs: Any) -> Any:
    """`trainable` with `kwargs` in addition to its config.

    The values are sent to the worker processes once, which share their memory. A value of 10 MB or
    more is stored as by `put`: it is not in tuner.pkl, so only the script, not `holdfast resume`,
    can resume the run. A class gets the values as arguments of `setup`.

    Raises InvalidConfig.
    """
    # Only here: few scripts need it.
    from holdfast.experiment.worker.objects import Parameters

    if isinstance(trainable, type):
        parent: Any = check_trainable(trainable)
        _check_names(parent.setup, f"{parent.__name__}.setup()", (None, {}), kwargs)
        kwargs = Parameters.of(kwargs)

        def setup(self: Any, config: dict[str, Any]) -> None:
            parent.setup(self, config, **kwargs)

        setattr(setup, PARAMETERS, "kwargs")
        held = {_IN_MEMORY: True} if kwargs.large else {}
        return type(trainable.__name__, (trainable,), {"setup": setup, **held})
    if not callable(trainable):
        check_trainable(trainable)

    _check_names(trainable, f"{name_of(trainable)}()", ({},), kwargs)
    kwargs = Parameters.of(kwargs)

    @_named_as(trainable)
    def bound(config: dict[str, Any]) -> Any:
        return trainable(config, **kwargs)

    setattr(bound, PARAMETERS, "kwargs")
    held = {_IN_MEMORY: True} if kwargs.large else {}
    return _holding(bound, {**_held_by(trainable), **held})


def is_in_memory(trainable: Any) -> bool:
    """True if `with_parameters` has bound it to a large value, which ends with this process."""
    return getattr(trainable, _IN_MEMORY, False) is True


def _check_names(
    function: Any, name: str, given: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> None:
    """Raises InvalidConfig if the function has no such parameters; others may be given later."""
    try:
        signature = inspect.signature(function)
    except ValueError:  # a builtin without a signature: only calling it will show
        return
    try:
        signature.bind_partial(*given, **kwargs)
    except TypeError as error:
        raise InvalidConfig(
            f"with_parameters(): {error}. It is {name.removesuffix('()')}{signature}"
        ) from error


@explains_call("with_resources")
def with_resources(
    trainable: Any,
    resources: Mapping[str, float]
    | PlacementGroupFactory
    | Callable[[dict[str, Any]], Mapping[str, float] | PlacementGroupFactory],
) -> Any:
    """`trainable` with a request for `resources` in each trial, or for those that a function of
    its config returns.

    Raises InvalidConfig for negative or unknown amounts.
    """
    if isinstance(trainable, type) or not callable(trainable):
        check_trainable(trainable)
    if not callable(resources) or isinstance(resources, PlacementGroupFactory):
        resources = request(resources)
    if isinstance(trainable, type):
        given: Any = resources
        if inspect.isfunction(given):  # in a class body, it would become a method
            given = staticmethod(given)
        return _holding(trainable, {_RESOURCES: given})
    return _holding(_wrapped(trainable), {**_held_by(trainable), _RESOURCES: resources})


def with_start(trainable: Any, checkpoint: Checkpoint) -> Any:
    """`trainable` whose trials begin from this checkpoint, until they have their own."""
    kind = trainable if isinstance(trainable, type) else _wrapped(trainable)
    return _holding(kind, {**_held_by(trainable), _START: checkpoint})


def start_of(trainable: Any) -> Checkpoint | None:
    """The checkpoint of `with_start`."""
    found = getattr(trainable, _START, None)
    return found if isinstance(found, Checkpoint) else None


def with_exports(trainable: type, formats: Sequence[str]) -> type:
    """The Trainable class, whose trials call `export_model(formats)` when they are done."""
    return cast(type, _holding(trainable, {_EXPORTS: tuple(formats)}))


def exports_of(trainable: type) -> list[str]:
    """The formats of `with_exports`."""
    return list(getattr(trainable, _EXPORTS, ()))


def _wrapped(trainable: Any) -> Any:
    """A function that calls this one, for attributes that the user's own does not get."""

    @_named_as(trainable)
    def bound(config: dict[str, Any], **kwargs: Any) -> Any:
        return trainable(config, **kwargs)

    with suppress(ValueError):  # a builtin has none
        bound.__signature__ = inspect.signature(trainable)
    return bound


def _named_as(trainable: Any) -> Callable[[Any], Any]:
    """Decorate a function: it gets the trainable's name and module, and those of the function in a
    `functools.partial`."""

    check_runs(trainable)

    def decorate(bound: Any) -> Any:
        functools.update_wrapper(bound, trainable, updated=())
        del bound.__wrapped__
        if not hasattr(trainable, "__name__"):  # a partial, or an object that can be called
            bound.__name__, bound.__module__ = name_of(trainable), module_of(trainable)
            bound.__doc__ = None
        return bound

    return decorate


def _holding(trainable: Any, held: Mapping[str, Any]) -> Any:
    """A subclass with these attributes; or the function, which gets them."""
    if isinstance(trainable, type):
        return type(trainable.__name__, (trainable,), dict(held))
    for name, value in held.items():
        setattr(trainable, name, value)
    return trainable


def _held_by(trainable: Any) -> dict[str, Any]:
    """The earlier bindings of a function; a subclass inherits its own."""
    names = () if isinstance(trainable, type) else (_RESOURCES, _START, _IN_MEMORY)
    return {name: getattr(trainable, name) for name in names if hasattr(trainable, name)}


def resources_of(
    trainable: Any,
) -> PlacementGroupFactory | Callable[[dict[str, Any]], PlacementGroupFactory]:
    """The resources of a trial of `trainable`: fixed, or a function of its config."""
    bound = getattr(trainable, _RESOURCES, None)
    if isinstance(bound, PlacementGroupFactory):
        return bound
    if callable(bound):
        return lambda config: request(bound(config))
    ask = getattr(trainable, "default_resource_request", None)
    if isinstance(trainable, type) and _overrides(trainable):
        assert ask is not None
        return lambda config: request(ask(config))
    return request(None)


def _overrides(trainable: type) -> bool:
    name = "default_resource_request"
    return getattr(trainable, name).__func__ is not vars(Trainable)[name].__func__
