"""holdfast runs hyperparameter searches and training jobs, and loses no results."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if sys.version_info < (3, 11):  # noqa: UP036 - a node may have such a Python, where nothing else works
    running = ".".join(map(str, sys.version_info[:3]))
    raise ImportError("holdfast needs Python 3.11 or newer; this is " + running)

if getattr(sys, "excepthook", None) is None:  # the import of `threading` fails without one
    sys.excepthook = sys.__excepthook__

from holdfast import (
    global_numbers as global_numbers,
)  # remembers those of `random` before a script seeds them
from holdfast.compat.ray_path import find_last
from holdfast.lazy import lazy
from holdfast.version import VERSION

if TYPE_CHECKING:
    from holdfast import cluster as cluster
    from holdfast.api.context import RuntimeContext as RuntimeContext
    from holdfast.api.context import available_resources as available_resources
    from holdfast.api.context import cluster_resources as cluster_resources
    from holdfast.api.context import get_gpu_ids as get_gpu_ids
    from holdfast.api.context import get_runtime_context as get_runtime_context
    from holdfast.api.context import nodes as nodes
    from holdfast.api.initializing import InitContext as InitContext
    from holdfast.api.initializing import init as init
    from holdfast.api.initializing import is_initialized as is_initialized
    from holdfast.api.initializing import shutdown as shutdown
    from holdfast.experiment.worker.objects import ObjectLost as ObjectLost
    from holdfast.experiment.worker.objects import ObjectRef as ObjectRef
    from holdfast.experiment.worker.objects import ObjectStoreFull as ObjectStoreFull
    from holdfast.experiment.worker.objects import get as get
    from holdfast.experiment.worker.objects import put as put

if sys.platform == "win32":
    raise ImportError("holdfast runs on Linux and macOS; on Windows use it inside WSL")

__version__ = VERSION

__getattr__, __dir__, __all__ = lazy(__name__)
find_last()
