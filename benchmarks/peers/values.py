"""A library's config with plain values in place of NumPy's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def plain(config: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value.item() if hasattr(value, "item") else value for name, value in config.items()
    }
