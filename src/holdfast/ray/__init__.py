"""`import holdfast.ray`: from now on, `import ray` means holdfast, here and in the workers.

A script that stays as it is runs with `holdfast ray script.py`, or `python -m holdfast.ray
script.py`. docs/moving-from-ray.md has the steps of a move.
"""

from __future__ import annotations

from typing import Any

from holdfast.compat import ray_path
from holdfast.ray_names.names import take_over

ray_path.activate()
_ray = take_over()


def __getattr__(name: str) -> Any:
    """The names of `ray`, for `import holdfast.ray as ray`."""
    return getattr(_ray, name)
