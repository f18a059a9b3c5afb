"""A value in a sweep file, with its line and path, so that each error says where."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from holdfast.dataclass import dataclass
from holdfast.names import printable
from holdfast.trial.errors import InvalidConfig, InvalidSearchSpace
from holdfast.trial.metrics import near_text

_SHOWN = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A scalar, a list of nodes, or a dict of nodes by name.

    `line` is the line of its name, 0 if that is not known; `path` is such as `parameters.lr.min`,
    "" for the whole file.
    """

    value: Any
    file: str
    line: int = 0
    path: str = ""

    @property
    def where(self) -> str:
        """`sweep.yaml:12: parameters.lr`."""
        line = f":{self.line}" if self.line else ""
        return f"{self.file}{line}" + (f": {self.path}" if self.path else "")

    def fail(self, message: str) -> NoReturn:
        """Raises InvalidConfig with the place of this value."""
        raise InvalidConfig(f"{self.where}: {message}")

    @contextmanager
    def blamed(self) -> Iterator[None]:
        """Errors in the block are errors of this value."""
        try:
            yield
        except (InvalidConfig, InvalidSearchSpace, TypeError, ValueError, ImportError) as error:
            if str(error).startswith(f"{self.file}"):
                raise
            raise InvalidConfig(f"{self.where}: {error}") from error

    def plain(self) -> Any:
        """The value without places."""
        if isinstance(self.value, dict):
            return {name: node.plain() for name, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value

    @property
    def is_table(self) -> bool:
        return isinstance(self.value, dict)

    def table(
        self, known: Sequence[str] | None = None, instead: Mapping[str, str] | None = None
    ) -> Mapping[str, Node]:
        """Its values by name. Raises InvalidConfig unless it is a table, with `known` names;
        `instead` has advice for others."""
        if not isinstance(self.value, dict):
            self.fail(f"must be a table of names and values, not {self.shown}")
        for name, node in self.value.items():
            if known is not None and name not in known:
                if instead and name in instead:
                    node.fail(f"is not supported. {instead[name]}")
                near = near_text([name], dict.fromkeys(known))
                node.fail(f"is unknown here.{near} Known: {', '.join(known)}")
        return self.value

    def items(self) -> list[Node]:
        """Raises InvalidConfig unless it is a list with at least one value."""
        if not isinstance(self.value, list) or not self.value:
            self.fail(f"must be a list of values, not {self.shown}")
        return self.value

    def text(self) -> str:
        if not isinstance(self.value, str) or not self.value:
            quote = (
                ""
                if self.is_table or isinstance(self.value, list)
                else '. Put it in quotes: "..."'
            )
            self.fail(f"must be text, not {self.shown}{quote}")
        return self.value

    def number(self) -> float:
        if isinstance(self.value, bool) or not isinstance(self.value, (int, float)):
            self.fail(f"must be a number, not {self.shown}")
        if math.isnan(self.value):
            self.fail("must be a number, not NaN")
        return self.value

    def whole(self) -> int:
        value = self.number()
        if isinstance(value, float) and not value.is_integer():
            self.fail(f"must be a whole number, not {self.shown}")
        return int(value)

    def flag(self) -> bool:
        if not isinstance(self.value, bool):
            self.fail(f"must be true or false, not {self.shown}")
        return self.value

    def choice(self, *known: str) -> str:
        """Raises InvalidConfig unless it is one of these words."""
        if self.value not in known:
            near = near_text([str(self.value)], dict.fromkeys(known))
            self.fail(f"must be one of {', '.join(known)}, not {self.shown}.{near}")
        return str(self.value)

    @property
    def shown(self) -> str:
        """The value in a message."""
        if self.is_table:
            return "a table"
        if isinstance(self.value, list):
            return "a list" if self.value else "an empty list"
        if self.value is None:
            return "empty"
        if isinstance(self.value, bool):
            return str(self.value).lower()
        return printable(f"{self.value!r:.{_SHOWN}}")


def with_setting(node: Node, names: Sequence[str], setting: Node) -> Node:
    """The node with another value at a path of names. Raises InvalidConfig if a part of the path
    is not a table."""
    if not names:
        return Node(value=setting.value, file=setting.file, path=node.path)
    if node.value is not None and not node.is_table:
        setting.fail(f"{node.path} is {node.shown}, not a table")
    name, *rest = names
    table = dict(node.value or {})
    path = f"{node.path}.{name}" if node.path else name
    inner = table.get(name, Node(value=None, file=setting.file, path=path))
    table[name] = with_setting(inner, rest, setting)
    return Node(value=table, file=node.file, line=node.line, path=node.path)
