"""`holdfast ray --check`: what a script uses of Ray: the same here, different or missing."""

from __future__ import annotations

import ast
import inspect
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from types import ModuleType
from typing import Any

from holdfast.compat.advice import advice
from holdfast.dataclass import dataclass
from holdfast.experiment.worker.context import report
from holdfast.ray_names.names import (
    NOT_YET,
    RAY,
    Names,
    Placeholder,
    State,
    is_served,
    package_of,
    parameter_text,
    state_of,
)
from holdfast.trial.config import why_refused

# A dotted name below `ray`, as its parts.
Dotted = tuple[str, ...]
_IMPORT_ERRORS = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})


@dataclass(slots=True)
class Used:
    """The uses of Ray in a script: lines by dotted name, and by keywords of calls. Names that are
    only imported have lines in `imported`; those whose ImportError the script expects are left
    out."""

    names: dict[Dotted, list[int]] = field(default_factory=lambda: defaultdict(list))
    keywords: dict[tuple[Dotted, str], list[int]] = field(
        default_factory=lambda: defaultdict(list)
    )
    imported: dict[Dotted, list[int]] = field(default_factory=lambda: defaultdict(list))


def read(text: str | bytes, file: str) -> Used:
    """The uses of Ray in the text of a script. Raises SyntaxError."""
    reader = _Reader()
    reader.read(ast.parse(text, file))
    return reader.used


class _Reader(ast.NodeVisitor):
    """Follows the names that are bound to parts of Ray. Bodies of functions come last, as they
    run after the module's own lines."""

    def __init__(self) -> None:
        self.used = Used()
        # From the outermost scope: what a name means; None for something that is not Ray's.
        self._scopes: list[dict[str, Dotted | None]] = [{}]
        self._later: list[Callable[[], None]] = []
        self._expects_errors = 0
        self._failed = 0  # imports that do

    def read(self, tree: ast.Module) -> None:
        self.visit(tree)
        while self._later:
            self._later.pop(0)()

    # -- what binds a name ------------------------------------------------------------------------

    def visit_Import(self, node: ast.Import) -> None:
        for one in node.names:
            root, *rest = one.name.split(".")
            if root != RAY:
                self._bind(one.asname or root, None)
                continue
            self._bind(one.asname or root, tuple(rest) if one.asname else ())
            self._note_import(tuple(rest), node.lineno)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        root, *rest = (node.module or "").split(".")
        for one in node.names:
            if root != RAY or node.level:
                self._bind(one.asname or one.name, None)
            elif one.name == "*":
                for name in Names(RAY, ".".join(rest)).all():
                    self._bind(name, (*rest, name))
            else:
                self._bind(one.asname or one.name, (*rest, one.name))
                self._note_import((*rest, one.name), node.lineno)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._bind(node.name, None)
        for part in (*node.decorator_list, *_defaults(node.args)):
            self.visit(part)
        self._visit_later(node.args, node.body)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        for part in _defaults(node.args):
            self.visit(part)
        self._visit_later(node.args, [node.body])

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for part in (*node.decorator_list, *node.bases, *node.keywords):
            self.visit(part)
        self._bind(node.name, None)
        self._scopes.append({})
        for line in node.body:
            self.visit(line)
        self._scopes.pop()

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """Annotations only mention names."""
        if node.value is not None:
            self.visit(node.value)
        self.visit(node.target)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        meaning = self._meaning(node.value)  # as in `Tuner = tune.Tuner`
        for target in node.targets:
            self.visit(target)
            if isinstance(target, ast.Name):
                self._bind(target.id, meaning)

    def visit_Try(self, node: ast.Try) -> None:
        expects = any(_catches_import_error(handler) for handler in node.handlers)
        failed = self._failed
        self._expects_errors += expects
        for line in node.body:
            self.visit(line)
        self._expects_errors -= expects
        bound = self._scopes[-1].copy()
        for handler in node.handlers:
            self.visit(handler)
        if self._failed == failed:  # the handlers do not run
            self._scopes[-1].update(bound)
        for part in (*node.orelse, *node.finalbody):
            self.visit(part)

    def _bind(self, name: str, meaning: Dotted | None) -> None:
        self._scopes[-1][name] = meaning

    def _note_import(self, name: Dotted, line: int) -> None:
        self._failed += not can_be_imported(name)
        if not self._expects_errors:
            self.used.imported[name].append(line)

    def _visit_later(self, arguments: ast.arguments, body: Sequence[ast.AST]) -> None:
        scopes = [*self._scopes, dict.fromkeys(_locals(arguments, body))]

        def visit() -> None:
            self._scopes = scopes
            for part in body:
                self.visit(part)

        self._later.append(visit)

    # -- what uses one ----------------------------------------------------------------------------

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self._note_use(node)
        else:
            self._bind(node.id, None)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if self._meaning(node) is None:
            self.generic_visit(node)
        else:
            self._note_use(node)

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        called = self._meaning(node.func)
        if called is not None:
            for keyword in node.keywords:
                for name in _keywords_of(keyword):
                    self.used.keywords[called, name].append(keyword.value.lineno)

    def _note_use(self, node: ast.Name | ast.Attribute) -> None:
        meaning = self._meaning(node)
        if meaning is not None:
            self.used.names[meaning].append(node.lineno)

    def _meaning(self, node: ast.expr) -> Dotted | None:
        """The dotted name below `ray` that an expression means; None for any other expression."""
        if isinstance(node, ast.Name):
            found = (scope[node.id] for scope in reversed(self._scopes) if node.id in scope)
            return next(found, None)
        if isinstance(node, ast.Attribute):
            owner = self._meaning(node.value)
            return None if owner is None else (*owner, node.attr)
        return None


def module_in(name: Dotted) -> tuple[str, Dotted]:
    """The path of the module that a dotted name begins with, and the rest."""
    count = 0
    while count < len(name) and is_served(".".join(name[: count + 1])):
        count += 1
    return ".".join(name[:count]), name[count:]


def can_be_imported(name: Dotted) -> bool:
    """True if the import of a name below `ray` works here; its use may still fail."""
    path = ".".join(name[:-1])
    if not is_served(path) or is_served(".".join(name)):
        return is_served(path)
    try:
        Names(RAY, path).get(ModuleType(RAY), name[-1])
    except (AttributeError, ImportError) as error:
        return isinstance(error, ImportError)  # of its library, which is not installed
    return True


def _keywords_of(keyword: ast.keyword) -> Iterator[str]:
    """Its name; those of a dict for `runtime_env` follow, as in `runtime_env.pip`."""
    if keyword.arg is not None:
        yield keyword.arg
    if keyword.arg == "runtime_env" and isinstance(keyword.value, ast.Dict):
        keys = [key.value for key in keyword.value.keys if isinstance(key, ast.Constant)]
        yield from (f"runtime_env.{key}" for key in keys if isinstance(key, str))


def _defaults(arguments: ast.arguments) -> list[ast.expr]:
    return [*arguments.defaults, *filter(None, arguments.kw_defaults)]


def _locals(arguments: ast.arguments, body: Sequence[ast.AST]) -> Iterator[str]:
    """The names that a function binds."""
    for node in (one for part in (arguments, *body) for one in ast.walk(part)):
        if isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def _catches_import_error(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    names = {node.id for node in ast.walk(handler.type) if isinstance(node, ast.Name)}
    return bool(names & _IMPORT_ERRORS)


_UNKNOWN = State(kind="missing", text="holdfast has no such name", section=NOT_YET)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A name that a script uses, or a keyword of its calls: `ray.tune.run(loggers=)`.

    `is_used` is false for a name that is only imported, which fails nothing.
    """

    name: str
    state: State
    lines: Sequence[int]
    is_used: bool = True


def check(text: str | bytes, file: str) -> list[Finding]:
    """The names that the script uses, in their order. Runs none of it. Raises SyntaxError."""
    used = read(text, file)
    return sorted(_findings(used), key=lambda one: (one.lines[0], one.name))


def _findings(used: Used) -> Iterator[Finding]:
    for name, lines in used.names.items():
        if (state := _state(name)) is not None:
            yield Finding(name=_shown(name), state=state, lines=sorted(set(lines)))
    for name, lines in used.imported.items():
        if any(one[: len(name)] == name for one in used.names):
            continue
        if (state := _state(name)) is not None and state.kind == "missing":
            fails = not can_be_imported(name)
            yield Finding(name=_shown(name), state=state, lines=lines, is_used=fails)
    for (name, keyword), lines in used.keywords.items():
        if (state := _keyword_state(name, keyword)) is not None:
            shown = f"{_shown(name)}({keyword}=)"
            yield Finding(name=shown, state=state, lines=sorted(set(lines)))


def _shown(name: Dotted) -> str:
    return ".".join((RAY, *name))


def _state(name: Dotted) -> State | None:
    """The state of a dotted name; None for a module that is there."""
    path, rest = module_in(name)
    if not rest:
        package = package_of(path)
        return None if package is None else State.of(package)
    found = object_of(path, rest[0])
    state = state_of(path, rest[0], is_here=found is not None)
    if state is None:
        return _UNKNOWN
    if state.kind != "missing" and len(rest) > 1 and inspect.isclass(found):
        return state if hasattr(found, rest[1]) else _UNKNOWN
    return state


def object_of(path: str, name: str) -> Any:
    """The object of `ray.path.name` in holdfast; None if it is not there. A text if its library is
    not installed."""
    if package_of(f"{path}.{name}".lstrip(".")) is not None:
        return None
    try:
        found = Names(RAY, path).get(ModuleType(RAY), name)
    except AttributeError:
        return None
    except ImportError as error:
        return str(error)
    return None if isinstance(found, Placeholder) else found


def _keyword_state(name: Dotted, keyword: str) -> State | None:
    """The state of a keyword of a call; None for one that is there."""
    if setting := keyword.partition("runtime_env.")[2]:
        why, section = why_refused(setting), "shared-objects-and-runtime_env"
        return State(kind="missing", text=why, section=section) if why else None
    path, rest = module_in(name)
    found: Any = object_of(path, rest[0]) if rest else None
    for part in rest[1:]:
        found = getattr(found, part, None)
    parameters = _parameters(found)
    # In older scripts each metric is a keyword of report().
    if parameters is None or keyword in parameters or found is report:
        return None
    text = parameter_text(path, rest[0], keyword) or advice(rest[-1], keyword)
    use = text[0].lower() + text[1:] if text.startswith("Use ") else f"use {text}" if text else ""
    state = state_of(path, rest[0], is_here=True)
    section = state.section if state is not None and state.section else NOT_YET
    return State(kind="missing", text=use or "there is no such parameter", section=section)


def _parameters(called: Any) -> set[str] | None:
    """The names of its parameters; None if any, or if they are not known."""
    try:
        parameters = inspect.signature(called).parameters
    except (TypeError, ValueError):
        return None
    if any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
        return None
    return set(parameters)
