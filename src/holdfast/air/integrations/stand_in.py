"""What ranks get that track nothing."""

from __future__ import annotations

from typing import Any


class StandIn:
    """Stands for a tracker's run or module: takes whatever is asked of it, and does nothing."""

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
