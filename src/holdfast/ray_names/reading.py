"""Reads which names of Ray a script uses, without running it."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from types import ModuleType

from holdfast.dataclass import dataclass
from holdfast.ray_names.finder import RAY, Names, is_served

# A dotted name below `ray`, as its parts.
Dotted = tuple[str, ...]
_IMPORT_ERRORS = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})


@dataclass(slots=True)
class Used:
    """What a script uses: lines by dotted name, and by the keywords of its calls. Names that are
    only imported have lines in `imported`; those whose ImportError the script expects are left
    out."""

    names: dict[Dotted, list[int]] = field(default_factory=lambda: defaultdict(list))
    keywords: dict[tuple[Dotted, str], list[int]] = field(
        default_factory=lambda: defaultdict(list)
    )
    imported: dict[Dotted, list[int]] = field(default_factory=lambda: defaultdict(list))


def read(text: str | bytes, file: str) -> Used:
    """What the text of a script uses. Raises SyntaxError."""
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
