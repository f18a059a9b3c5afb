"""The errors of the page's server."""

from __future__ import annotations

from importlib.util import find_spec

from holdfast.lazy import WEB
from holdfast.trial.errors import TuneError


class WebMissing(TuneError, ImportError):
    """The page was requested, but Starlette or uvicorn is not installed."""


class PortTaken(TuneError):
    """The port that was asked for is in use."""


class WebFailed(TuneError):
    """The server's process did not start."""


def check_installed(what: str) -> None:
    """Raise WebMissing if `what` cannot be served. Imports nothing."""
    if find_spec("starlette") is None or find_spec("uvicorn") is None:
        raise WebMissing(WEB.missing(what))
