"""Finds parameters in a library's own types where a search takes tune's domains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.lazy import Framework
from holdfast.trial.domains import Categorical
from holdfast.trial.errors import InvalidSearchSpace
from holdfast.trial.search_space.parameters import inside


def check_native(space: Any, who: str, library: Framework, name: str = "") -> None:
    """Raises InvalidSearchSpace, naming the key, for a parameter in the library's own types.

    It would be taken for a fixed value and never be searched.
    """
    if type(space).__module__.partition(".")[0] == library.module:
        raise InvalidSearchSpace(
            f"{name or 'space'} is a {type(space).__name__} of {library.title}: {who} searches "
            f"tune's own domains. Write tune.uniform(0, 1), tune.randint(0, 9), tune.choice([...])"
        )
    for key, part in _parts(space):
        check_native(part, who, library, inside(name, key))


def _parts(space: Any) -> list[tuple[Any, Any]]:
    if isinstance(space, Mapping):
        return list(space.items())
    if isinstance(space, Categorical):
        space = space.categories
    return list(enumerate(space)) if isinstance(space, (list, tuple)) else []
