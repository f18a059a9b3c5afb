"""The object that ranks get if they track nothing."""

from __future__ import annotations

from typing import Any


class StandIn:
    """Replaces a tracker's run or module: accepts every call and does nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self

    def __enter__(self) -> StandIn:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def __bool__(self) -> bool:
        return False
