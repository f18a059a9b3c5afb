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
    from holdfast.experiment.objects import (
        ObjectLost as ObjectLost,
    )
    from holdfast.experiment.objects import (
        ObjectRef as ObjectRef,
    )
    from holdfast.experiment.objects import (
        ObjectStoreFull as ObjectStoreFull,
    )
    from holdfast.experiment.objects import (
        get as get,
    )
    from holdfast.experiment.objects import (
        put as put,
    )

if sys.platform == "win32":
    raise ImportError("holdfast runs on Linux and macOS; on Windows use it inside WSL")

__version__ = "0.1.0"

_HOMES = {
    "ObjectLost": "holdfast.experiment.objects",
    "ObjectRef": "holdfast.experiment.objects",
    "ObjectStoreFull": "holdfast.experiment.objects",
    "get": "holdfast.experiment.objects",
    "init": "holdfast.experiment.cluster",
    "is_initialized": "holdfast.experiment.cluster",
    "put": "holdfast.experiment.objects",
    "shutdown": "holdfast.experiment.cluster",
}

__getattr__, __dir__ = lazy(__name__, _HOMES)
__all__ = list(_HOMES)
