"""Configs without the user's code: what stands in them for an object that is no plain data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.trial.values import Opaque, Ref, key_name, replace_leaves

# Gives a trial's config, as it is recorded, with the user's values in it.
ResolveConfig = Callable[[Mapping[str, Any]], dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class StoredObject:
    """Stands in a config for an object of the user's that was stored with it.

    Reading results never unpickles anything: call `load()` to have the object, only
    where you trust who wrote the experiment.
    """

    name: str
    summary: str
    pickled: bytes

    def load(self) -> Any:
        """The object. Runs the code that its pickle names, which must be importable here."""
        import cloudpickle

        return cloudpickle.loads(self.pickled)

    def __repr__(self) -> str:
        return f"<{self.name}: a stored {self.summary}, load() unpickles it>"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class NamedObject:
    """Stands in a config for an object that only the script's `param_space` holds."""

    name: str
    summary: str

    def __repr__(self) -> str:
        return f"<{self.name}: {self.summary} of the script's param_space, not stored>"


def config_without_code(config: Mapping[str, Any]) -> dict[str, Any]:
    """A trial's config with a placeholder for each value that is no plain data."""
    resolved: dict[str, Any] = replace_leaves(dict(config), _placeholder)
    return resolved


def _placeholder(path: tuple[str | int, ...], leaf: Any) -> Any:
    match leaf:
        case Opaque():
            return StoredObject(name=key_name(path), summary=leaf.summary, pickled=leaf.pickled)
        case Ref():
            return NamedObject(name=key_name(path), summary=leaf.summary)
        case _:
            return leaf
