"""Reads the domains of a search space from their text in the records.

The records have the search space as text (`loguniform(0.001, 0.1)`), so that reading it needs no
user code. The text is parsed as data and never evaluated.
"""

from __future__ import annotations

import ast
from typing import Any, Final

from holdfast.trial import space
from holdfast.trial.errors import InvalidSearchSpace

_DOMAINS: Final = {**space.DOMAINS, "choice": space.choice, "grid_search": space.choice}
_UNREADABLE = (SyntaxError, ValueError, TypeError, MemoryError, RecursionError, InvalidSearchSpace)


def read_domain(text: str) -> Any:
    """The value or domain that a text describes (a choice for `grid_search`); None if it cannot be
    read."""
    try:
        return _value(ast.parse(text, mode="eval").body)
    except _UNREADABLE:
        return None


def _value(node: ast.expr) -> Any:
    """The text is data: nothing is evaluated. Raises ValueError, TypeError, InvalidSearchSpace."""
    match node:
        case ast.Call(func=ast.Name(id=name), args=given, keywords=named) if name in _DOMAINS:
            words = {word.arg or "": _value(word.value) for word in named}
            return _DOMAINS[name](*map(_value, given), **words)
        case ast.Dict(keys=keys, values=values):
            pairs = zip(keys, values, strict=True)
            return {ast.literal_eval(key or node): _value(value) for key, value in pairs}
        case ast.List(elts=parts):
            return list(map(_value, parts))
        case ast.Tuple(elts=parts):
            return tuple(map(_value, parts))
        case _:
            return ast.literal_eval(node)
