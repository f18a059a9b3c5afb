"""Reads YAML, JSON and TOML as data, with the line of each value where the format gives it.

Scalars of YAML are read by the core schema of YAML 1.2: `1e-4` is a number, and `no`, `on` and
`2024-01-01` are text. `<<` merges tables, as in YAML 1.1. Other tags than this schema's are
refused. Size, depth and aliases are limited.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NoReturn

from holdfast.dataclass import dataclass
from holdfast.lazy import YAML
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


MOST_BYTES: Final = 1 << 20
MOST_VALUES: Final = 20_000
DEEPEST: Final = 32
_TAG = "tag:yaml.org,2002:"
_TAGS = (f"{_TAG}seq", f"{_TAG}map")
_SCALARS: Mapping[str, type] = {
    f"{_TAG}{kind.__name__}": kind for kind in (str, float, int, bool)
} | {f"{_TAG}null": type(None)}
_INT = re.compile(r"[-+]?[0-9]{1,400}|0o[0-7]{1,400}|0x[0-9a-fA-F]{1,400}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORDS: Mapping[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
}
FORMATS: Final = (".yaml", ".yml", ".json", ".toml")


def read_file(path: Path) -> tuple[Node, bytes]:
    """The file as a Node, and its bytes. Raises InvalidConfig."""
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise InvalidConfig(f"cannot read {path}: {error.strerror}") from error
    if len(data) > MOST_BYTES:
        raise InvalidConfig(f"{path} has more than {MOST_BYTES:,} bytes: it is no sweep file")
    try:
        text = data.decode("utf-8-sig")  # editors of Windows begin files with a mark
    except UnicodeDecodeError as error:
        raise InvalidConfig(f"{path} is not UTF-8 text: {error}") from error
    return read(text, path.name, path.suffix.lower()), data


def read(text: str, file: str, suffix: str) -> Node:
    """The text of a `file` in the format of its suffix. Raises InvalidConfig."""
    match suffix:
        case ".yaml" | ".yml":
            node = _yaml(text, file)
        case ".json":
            node = _structured(text, file, lambda: json.loads(text, object_pairs_hook=_unique))
        case ".toml":
            node = _structured(text, file, lambda: tomllib.loads(text))
        case _:
            raise InvalidConfig(f"{file}: a sweep file ends with {', '.join(FORMATS)}")
    if not node.is_table:
        node.fail(f"the file must be a table of names and values, not {node.shown}")
    return node


def scalar(text: str) -> Any:
    """A plain scalar by YAML's core schema."""
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
    return float(text) if _FLOAT.fullmatch(text) else text


def setting(text: str) -> tuple[list[str], Node]:
    """The path and the value of `--set key=value`. Raises InvalidConfig."""
    name, mark, said = text.partition("=")
    names = name.split(".")
    if not mark or not all(names):
        raise InvalidConfig(f"--set takes KEY=VALUE, as in parameters.lr.max=0.1, not {text!r}")
    try:
        value = json.loads(said)
    except (ValueError, RecursionError):
        value = scalar(said)
    return names, _Builder("--set").of_plain(value, "", 0)


# -- formats without lines ------------------------------------------------------------------------


def _structured(text: str, file: str, parse: Any) -> Node:
    try:
        return _Builder(file).of_plain(parse(), "", 0)
    except (ValueError, RecursionError) as error:
        if isinstance(error, InvalidConfig):
            raise
        raise InvalidConfig(f"{file}: {error}") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = sorted({name for name in names if names.count(name) > 1})
        raise ValueError(f"{', '.join(twice)} is there twice")
    return found


# -- YAML -----------------------------------------------------------------------------------------


def _yaml(text: str, file: str) -> Node:
    try:
        import yaml
    except ImportError as error:
        raise InvalidConfig(
            f"{file}: {YAML.missing('YAML', error)}. JSON and TOML need nothing"
        ) from error
    try:
        # The base loader makes only text, lists and tables of it; nothing is constructed. A scalar
        # has a tag only if the file gives it one.
        loader = type("Loader", (yaml.BaseLoader,), {"DEFAULT_SCALAR_TAG": ""})
        documents = list(yaml.compose_all(text, Loader=loader))
    except yaml.YAMLError as error:
        raise InvalidConfig(f"{file}{_mark(error)}: {_problem(error)}") from error
    except RecursionError as error:
        raise InvalidConfig(f"{file}: nested too deeply") from error
    if len(documents) != 1:
        raise InvalidConfig(f"{file}: has {len(documents)} documents (separated by ---), not one")
    return _Builder(file).of_yaml(documents[0], "", 0, 0)


def _mark(error: Any) -> str:
    mark = getattr(error, "problem_mark", None)
    return f":{mark.line + 1}" if mark is not None else ""


def _problem(error: Any) -> str:
    hint = ". Indent with spaces" if "'\\t'" in str(error) else ""
    return f"not YAML: {getattr(error, 'problem', None) or error}{hint}"


class _Builder:
    """Makes nodes of one file, with a limit on how many, and how deep."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._left = MOST_VALUES

    def of_plain(self, value: Any, path: str, depth: int) -> Node:
        made = self._checked(Node(value=value, file=self._file, path=path), depth)
        if isinstance(value, dict):
            inner = {
                name: self.of_plain(item, _below(path, name), depth + 1)
                for name, item in value.items()
            }
            return replace(made, value=inner)
        if isinstance(value, list):
            items = [
                self.of_plain(item, f"{path}[{at}]", depth + 1) for at, item in enumerate(value)
            ]
            return replace(made, value=items)
        if not isinstance(value, (str, int, float, bool, type(None))):
            made.fail(f"a {type(value).__name__} is not a value of a sweep: put it in quotes")
        return made

    def of_yaml(self, found: Any, path: str, line: int, depth: int) -> Node:
        made = self._checked(Node(value=None, file=self._file, line=line, path=path), depth)
        if found.tag not in ("", *_TAGS, *_SCALARS):
            made.fail(f"the tag {found.tag!r:.60} is not supported: a sweep file is plain data")
        if found.id == "scalar":
            value = scalar(found.value) if found.style is None else found.value
            if (kind := _SCALARS.get(found.tag)) is not None:
                value = _tagged(found.value, kind, made)
            return replace(made, value=value)
        if found.id == "sequence":
            items = [
                self.of_yaml(item, f"{path}[{at}]", item.start_mark.line + 1, depth + 1)
                for at, item in enumerate(found.value)
            ]
            return replace(made, value=items)
        return replace(made, value=self._table(found, path, depth))

    def _table(self, found: Any, path: str, depth: int) -> dict[str, Node]:
        table: dict[str, Node] = {}
        merged: dict[str, Node] = {}
        for key, item in found.value:
            line = key.start_mark.line + 1
            place = Node(value=None, file=self._file, line=line, path=path)
            if key.id != "scalar" or key.tag not in ("", f"{_TAG}str"):
                place.fail("a name must be text")
            if key.value == "<<" and key.style is None:
                for one in reversed(item.value if item.id == "sequence" else [item]):
                    merged |= self.of_yaml(one, path, line, depth + 1).table()
                continue
            if key.value in table:
                first = table[key.value].line
                place.fail(f"{key.value!r:.60} is there twice, also in line {first}")
            table[key.value] = self.of_yaml(item, _below(path, key.value), line, depth + 1)
        return {**merged, **table}

    def _checked(self, node: Node, depth: int) -> Node:
        self._left -= 1
        if self._left < 0:
            node.fail(f"more than {MOST_VALUES:,} values, counting what aliases repeat")
        if depth > DEEPEST:
            node.fail(f"nested more than {DEEPEST} levels deep")
        return node


def _tagged(text: str, kind: type, place: Node) -> Any:
    """The value of a scalar with a tag, such as `!!float 1e-5`. Raises InvalidConfig."""
    value = text if kind is str else scalar(text)
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind:
        place.fail(f"{text!r:.60} is not what its tag says: {kind.__name__}")
    return value


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
