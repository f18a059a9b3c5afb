"""Keywords that say where and how Ray runs a task: accepted, and without effect here."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar

from holdfast.names import listed
from holdfast.plain_numbers import takes_numbers

P = ParamSpec("P")
T = TypeVar("T")

_WITHOUT_EFFECT: Final = (
    *("parallelism", "override_num_blocks", "concurrency", "compute", "num_cpus", "num_gpus"),
    *("memory", "resources", "accelerator_type", "label_selector", "fallback_strategy"),
    *("max_calls", "scheduling_strategy", "ray_remote_args", "ray_remote_args_fn"),
    *("zero_copy_batch", "udf_modifying_row_count", "try_create_dir"),
    *("arrow_open_stream_args", "arrow_open_file_args", "locality_hints"),
)


def without_scheduling(given: Callable[P, T]) -> Callable[P, T]:
    """Decorate a public function: it also accepts the keywords of Ray for the work's place and
    size. A dataset is read in the process that needs its rows.

    If the function ends with `**ray_remote_args`, it accepts no others. Its numbers are plain (see
    `plain_numbers`).
    """
    call = takes_numbers(given)
    own = inspect.signature(call)
    parameters = list(own.parameters.values())
    rest = parameters.pop() if parameters[-1].kind is inspect.Parameter.VAR_KEYWORD else None
    is_closed = rest is None or rest.name == "ray_remote_args"
    names = [one.name for one in parameters]
    shown = listed([name for name in names if name != "self"], 20)

    @wraps(call)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        for name in kwargs.keys() - set(names):
            if name in _WITHOUT_EFFECT:
                del kwargs[name]
            elif is_closed:
                raise TypeError(f"{call.__name__}() has no parameter {name!r}. It has {shown}")
        return call(*args, **kwargs)

    ignored = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Any)
        for name in _WITHOUT_EFFECT
        if name not in own.parameters
    ]
    called.__signature__ = own.replace(  # type: ignore[attr-defined]
        parameters=[*parameters, *ignored, *([rest] if rest is not None else [])]
    )
    return called
