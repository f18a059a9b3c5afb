"""Trainables as users pass them, and what can be bound to them: parameters and resources."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol, cast, runtime_checkable

from holdfast import ray_path
from holdfast.experiment.user_objects.pickling import PARAMETERS
from holdfast.experiment.worker.trainable import Trainable
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.resources import PlacementGroupFactory, request
from holdfast.unknown_keywords import explains_call

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
    """Whether trials can save themselves on request: those of a class with `save_checkpoint`."""
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
    """What a function was bound to before; a subclass inherits it."""
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
