"""The configuration as `sample_from` functions see it, and the conversion of their results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.trial.values import unwrap_scalar


class Unresolved(Exception):
    """A `sample_from` function read a value that is not drawn yet: it is called again later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """The placeholder of a value that a `sample_from` function has not returned yet."""

    name: str


class ConfigView(Mapping[str, Any]):
    """A configuration for `sample_from` functions: `settings.lr` and `settings["lr"]`.

    Reading a value that is not drawn yet adds its name to `missed` and raises Unresolved.
    """

    __slots__ = ("_missed", "_values")

    def __init__(self, values: Mapping[str, Any], missed: list[str]) -> None:
        self._values = values
        self._missed = missed

    def __getitem__(self, key: str) -> Any:
        return self._open(self._values[key])

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # copy and pickle look these up before _values exists
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError:
            known = ", ".join(map(repr, self._values))
            raise AttributeError(f"there is no {name!r} here, only {known}", name=name) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._values!r})"

    def _open(self, value: Any) -> Any:
        if type(value) is Waiting:
            self._missed.append(value.name)
            raise Unresolved(value.name)
        if type(value) is dict:
            return ConfigView(value, self._missed)
        if type(value) is list or type(value) is tuple:
            return type(value)(map(self._open, value))
        return value


class Spec(ConfigView):
    """The whole configuration, also under `config`: `spec.config.lr`, `spec["config"]["lr"]`."""

    __slots__ = ()

    @property
    def config(self) -> ConfigView:
        return ConfigView(self._values, self._missed)

    def __getitem__(self, key: str) -> Any:
        if key == "config" and key not in self._values:
            return self.config
        return super().__getitem__(key)


def detach(value: Any, settle: Callable[[Any], Any]) -> Any:
    """The result of a `sample_from` function, in new containers, with ConfigViews as dicts.

    `settle` returns what takes the place of each part, such as a value drawn from a domain.
    """
    value = settle(value)
    if isinstance(value, ConfigView) or type(value) is dict:
        return {key: detach(item, settle) for key, item in value.items()}
    if type(value) in (list, tuple, set, frozenset):
        return type(value)(detach(item, settle) for item in value)
    return unwrap_scalar(value)
