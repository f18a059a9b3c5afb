"""A Tuner as text and as HTML: what it will run, and how far it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from holdfast.experiment.start.request import Request
from holdfast.experiment.worker.wrap import name_of
from holdfast.syncer.errors import StorageError
from holdfast.syncer.stores.location import Location
from holdfast.text.tables import html_facts, html_heading, html_table
from holdfast.text.values import format_value
from holdfast.trial.search_space.description import describe
from holdfast.trial.values import key_name

_PARAMS = 50
_CHARS = 100


def tuner_text(request: Request, state: str, environ: Mapping[str, str]) -> str:
    """The lines of `repr(tuner)`."""
    facts = [*_space(request), *_facts(request, state, environ)]
    lines = [f"  {name}: {value}" for name, value in facts]
    return "\n".join([f"Tuner({_trainable(request)})", *lines])


def tuner_html(request: Request, state: str, environ: Mapping[str, str]) -> str:
    """The same for a notebook's cell."""
    space = _space(request)
    parts = [
        html_heading(f"Tuner({_trainable(request)})"),
        html_table(["parameter", "domain"], space) if space else "",
        html_facts(_facts(request, state, environ)),
    ]
    return "\n".join(filter(None, parts))


def _trainable(request: Request) -> str:
    return name_of(request.trainable)


def _space(request: Request) -> list[tuple[str, str]]:
    """Each parameter with its domain or value."""
    parts = describe(request.param_space)
    shown = [(key_name(tuple(part["path"])), part["text"]) for part in parts[:_PARAMS]]
    more = len(parts) - len(shown)
    rest = [(f"... {more} more", "")] if more else []
    return [(name, format_value(text, _CHARS)) for name, text in [*shown, *rest]]


def _facts(request: Request, state: str, environ: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(name, text) for name, text in _known(request, state, environ) if text]


def _known(request: Request, state: str, environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    tune = request.tune
    yield "metric", " ".join(filter(None, [request.metric, request.mode and f"({request.mode})"]))
    endless = "without a limit" if tune.num_samples == -1 else str(tune.num_samples)
    yield "num_samples", endless
    yield "max_concurrent_trials", str(request.max_concurrent or "")
    yield "time_budget_s", str(tune.time_budget_s or "")
    yield "search_alg", request.search_name
    yield "scheduler", request.scheduler_name
    yield "stop", _stop(request.run.stop)
    yield "tags", ", ".join(f"{name}={value}" for name, value in (request.run.tags or {}).items())
    yield "storage", _storage(request, environ)
    yield "state", state


def _stop(stop: Any) -> str:
    if stop is None:
        return ""
    if isinstance(stop, Mapping):
        return ", ".join(f"{name}={format_value(bound)}" for name, bound in stop.items())
    return getattr(stop, "__name__", type(stop).__name__)


def _storage(request: Request, environ: Mapping[str, str]) -> str:
    """Where the experiment is or will be, without credentials."""
    if request.opened is not None:
        return request.opened.path
    run = request.run
    try:
        place = Location.resolve(run.storage_path, run.storage_filesystem, environ)
    except StorageError as error:  # which fit() raises
        return str(error)
    return (place if run.name is None else place.child(run.name)).public
