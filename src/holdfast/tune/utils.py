"""`holdfast.tune.utils`: a check of a class trainable before it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazy

if TYPE_CHECKING:
    from holdfast.experiment.worker.trainable import validate_save_restore as validate_save_restore

__getattr__, __dir__, __all__ = lazy(__name__)
