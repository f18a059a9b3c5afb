"""What stands for a name of Ray that holdfast does not have: it fails when it is used."""

from __future__ import annotations

from typing import Any, NoReturn, Union

from holdfast.errors import TuneError
from holdfast.ray_names.missing import PAGE, Missing


class NotInHoldfast(TuneError, AttributeError):
    """The script uses a name of Ray that holdfast does not have."""


def text_of(name: str, missing: Missing) -> str:
    """The message for a name such as `ray.remote`."""
    return (
        f"{name} is not in holdfast, which stands in for Ray here. Use {missing.use} "
        f"({PAGE}#{missing.section})"
    )


class Placeholder:
    """A name that can be imported and mentioned. Each use raises NotInHoldfast."""

    def __init__(self, name: str, missing: Missing) -> None:
        """`name` is the full name, such as `ray.remote`."""
        self.__dict__.update(_name=name, _missing=missing)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # asked by Python and by libraries, of any object
            raise AttributeError(name)
        self._fail()

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        self._fail()

    def __mro_entries__(self, bases: tuple[Any, ...]) -> NoReturn:
        self._fail()

    def __instancecheck__(self, instance: object) -> NoReturn:
        self._fail()

    def __subclasscheck__(self, subclass: object) -> NoReturn:
        self._fail()

    def __iter__(self) -> NoReturn:
        self._fail()

    def __add__(self, other: object) -> NoReturn:  # DEFAULT_LOGGERS + (WandbLogger,)
        self._fail()

    __radd__ = __add__

    def __setattr__(self, name: str, value: object) -> NoReturn:
        self._fail()

    def __getitem__(self, _: object) -> Placeholder:
        return self  # in an annotation

    def __or__(self, other: Any) -> Any:
        return Union[self, other]  # in an annotation  # noqa: UP007

    def __ror__(self, other: Any) -> Any:
        return Union[other, self]  # noqa: UP007

    def __repr__(self) -> str:
        return f"<{self._name}, which is not in holdfast>"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._name, self._missing)

    def _fail(self) -> NoReturn:
        raise NotInHoldfast(text_of(self._name, self._missing))
