"""`holdfast.tune.utils`: a check of a class trainable before it runs, and functions for nested
dicts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazy

if TYPE_CHECKING:
    from holdfast.experiment.worker.trainables import (
        validate_save_restore as validate_save_restore,
    )
    from holdfast.tune.nested import deep_update as deep_update
    from holdfast.tune.nested import flatten_dict as flatten_dict
    from holdfast.tune.nested import merge_dicts as merge_dicts
    from holdfast.tune.nested import unflattened_lookup as unflattened_lookup

__getattr__, __dir__, __all__ = lazy(__name__)
