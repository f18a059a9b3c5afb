"""holdfast: training runs that are not lost."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from holdfast.lazy import lazy

if TYPE_CHECKING:
    from holdfast.experiment.cluster import (
        init as init,
    )
    from holdfast.experiment.cluster import (
        is_initialized as is_initialized,
    )
    from holdfast.experiment.cluster import (
        shutdown as shutdown,
    )

if sys.platform == "win32":
    raise ImportError("holdfast runs on Linux and macOS; on Windows use it inside WSL")

__version__ = "0.1.0"

_HOMES = {
    "init": "holdfast.experiment.cluster",
    "is_initialized": "holdfast.experiment.cluster",
    "shutdown": "holdfast.experiment.cluster",
}

__getattr__, __dir__ = lazy(__name__, _HOMES)
__all__ = list(_HOMES)
