"""`holdfast.tune.stopper`: what ends trials."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazy

if TYPE_CHECKING:
    from holdfast.trial.stopper import Stopper as Stopper

_HOMES = {
    "Stopper": "holdfast.trial.stopper",
}

__getattr__, __dir__ = lazy(__name__, _HOMES)
__all__ = list(_HOMES)
