"""Trackers are in `holdfast.air.integrations`."""

from __future__ import annotations

from typing import NoReturn

from holdfast.lazy import missing


def __getattr__(name: str) -> NoReturn:
    raise missing(__name__, name)
