"""Search spaces with HyperOpt's own expressions, such as `hp.uniform`, and tune's domains next to
them.

Everything becomes one expression of the library, which computes the configs. An assignment has a
value for each of its labels.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from hyperopt import hp
from hyperopt.base import Domain as Expressed
from hyperopt.exceptions import DuplicateLabel
from hyperopt.pyll import Apply, Literal, as_apply, clone, dfs, rec_eval
from hyperopt.pyll.stochastic import sample

from holdfast.plain_numbers import is_number
from holdfast.trial.errors import InvalidSearchSpace
from holdfast.trial.search_space.parameters import (
    Assignment,
    Parameter,
    Same,
    inside,
    items_of,
    keys_of,
)
from holdfast.trial.space import Categorical, Domain, Function, is_grid
from holdfast.trial.values import unwrap_scalar

_LABELLED: Final = "hyperopt_param"
_CHOSEN: Final = "switch"
_NUMBERS: Final = ("float", "int")
_READABLE: Final = {"dict", "literal", "pos_args", _LABELLED, _CHOSEN, *_NUMBERS}
# Those with two bounds; the others have no upper one.
_BOUNDED: Final = ("uniform", "quniform")

Expression = Callable[[Parameter], Any]


def has_expressions(space: Any) -> bool:
    """True if a space contains an expression of HyperOpt."""
    if isinstance(space, Apply):
        return True
    if isinstance(space, Categorical):
        space = space.categories
    if isinstance(space, Mapping):
        return any(map(has_expressions, space.values()))
    return isinstance(space, (list, tuple)) and any(map(has_expressions, space))


def searched_part(space: Mapping[str, Any]) -> dict[str, Any]:
    """The keys with an expression or a domain, also in nested dicts."""
    return {
        key: searched_part(value) if isinstance(value, dict) and not is_grid(value) else value
        for key, value in space.items()
        if _is_searched(value)
    }


class ExpressionSpace:
    """See `library.AssignmentCodec`. `expression` makes the library's one of a numeric domain.

    `domain` is the library's object for the whole space, `labels` its parameters. `computes`: some
    values are computed from others, as in `1 + hp.randint("n", 9)`: they cannot be read back.

    Raises InvalidSearchSpace, naming the key or the label.
    """

    def __init__(self, space: Any, who: str, expression: Expression) -> None:
        self._who = who
        self._expression = expression
        self._domains: dict[str, Parameter] = {}  # tune's, by their labels
        self._labels: dict[Apply, str] = {}
        self._root = as_apply(self._expressed(space, "space" if isinstance(space, Apply) else ""))
        try:
            self.domain = Expressed(None, self._root)
        except DuplicateLabel as error:
            raise InvalidSearchSpace(
                f"space has two parameters of HyperOpt with the label {str(error)!r}: give each a "
                f"label of its own"
            ) from None
        self._root = self.domain.expr
        self._labels |= {
            node: node.arg["label"].obj
            for node in dfs(self._root)
            if node.name == _LABELLED and node.arg["label"].obj not in self._domains
        }
        self.labels = [*self.domain.params]
        self.computes = any(not self._is_readable(node) for node in self._nodes(self._root))

    # -- the expression -------------------------------------------------------------------------

    def _expressed(self, value: Any, name: str) -> Any:
        match value:
            case Apply():
                return self._with_domains(value, name)
            case Categorical(categories=categories):
                options = [self._expressed(one, f"{name}:{i}") for i, one in enumerate(categories)]
                return hp.choice(_label(name), options)
            case Function():
                raise InvalidSearchSpace(
                    f"{name}: {self._who} cannot search a sample_from: compute the value in the "
                    f"trainable, from the values that it depends on"
                )
            case Domain():
                return self._numeric(value, name)
            case dict() if is_grid(value):
                raise InvalidSearchSpace(
                    f"{name}: {self._who} cannot search a grid_search: use tune.choice or "
                    f"hp.choice instead"
                )
            case dict() if _is_searched(value):
                return {k: self._expressed(one, inside(name, k)) for k, one in value.items()}
            case list() | tuple() if _is_searched(value):
                return [self._expressed(one, inside(name, i)) for i, one in enumerate(value)]
            case _:
                return Literal(value)

    def _with_domains(self, expression: Apply, name: str) -> Apply:
        """The expression, with an expression in place of each domain inside it."""
        domains = [
            node
            for node in dfs(expression)
            if isinstance(node, Literal) and isinstance(node.obj, Domain)
        ]
        for node in dfs(expression):
            if node.name == "dict" and [key for key, _ in node.named_args] == ["grid_search"]:
                raise InvalidSearchSpace(f"{name}: a grid_search inside of a HyperOpt expression")
        if not domains:
            return expression
        memo = {
            node: as_apply(self._expressed(node.obj, f"{name}:{i}"))
            for i, node in enumerate(domains)
        }
        return clone(expression, memo)

    def _numeric(self, domain: Any, name: str) -> Apply:
        label = _label(name)
        parameter = Parameter(name=label, domain=domain)
        node: Apply = self._expression(parameter)
        self._domains[label], self._labels[node] = parameter, label
        return node

    def _nodes(self, node: Apply) -> Iterator[Apply]:
        """The nodes that compute a config, without those of distributions."""
        yield node
        if node not in self._labels:
            for part in node.inputs():
                yield from self._nodes(part)

    def _is_readable(self, node: Apply) -> bool:
        if node in self._labels:
            return True
        is_chosen = node.name != _CHOSEN or node.pos_args[0] in self._labels
        return node.name in _READABLE and is_chosen

    # -- configs and assignments ----------------------------------------------------------------

    def config(self, assignment: Assignment) -> dict[str, Any]:
        config = _plain(self._evaluated(self._root, assignment))
        if not isinstance(config, dict):
            raise InvalidSearchSpace(
                f"space gives {config!r:.100}, but a config is a dict: put it under a key"
            )
        return config

    def known(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        if self._root.name != "dict":
            return config
        keys = {key for key, _ in self._root.named_args}
        return {key: value for key, value in config.items() if key in keys}

    def assignment(self, config: Mapping[str, Any], label: str, alike: Same) -> Assignment:
        found: dict[str, Any] = {}
        try:
            self._read(self._root, "", config, found, alike)
        except InvalidSearchSpace as error:
            raise InvalidSearchSpace(f"{label}: {error}") from None
        return found

    def fit(self, assignment: Assignment, who: str) -> Assignment:
        def refuse(label: str) -> Any:
            raise InvalidSearchSpace(f"{label}: {who} returned no value for it")

        return self._existing(assignment, refuse)

    def complete(self, assignment: Assignment, rng: random.Random) -> Assignment:
        def draw(label: str) -> Any:
            if label in self._domains:
                return self._domains[label].draw(rng)
            import numpy as np

            numbers = np.random.default_rng(int(rng.random() * 2**32))
            # An array of one number for hp.pchoice.
            return np.ravel(sample(self.domain.params[label], numbers))[0]

        return self._existing(assignment, draw)

    def _existing(self, assignment: Assignment, missing: Callable[[str], Any]) -> Assignment:
        """The values of the labels that exist under `assignment`, `missing` ones added."""
        whole: dict[str, Any] = {}

        def visit(node: Apply) -> None:
            label = self._labels.get(node)
            if label is not None:
                value = assignment[label] if label in assignment else missing(label)
                whole.setdefault(label, self._fitted(label, value))
            elif node.name == _CHOSEN:
                visit(node.pos_args[0])
                visit(node.pos_args[1 + int(self._evaluated(node.pos_args[0], whole))])
            else:
                for part in node.inputs():
                    visit(part)

        visit(self._root)
        return whole

    def _fitted(self, label: str, value: Any) -> Any:
        value = unwrap_scalar(value)
        return self._domains[label].fit(value) if label in self._domains else value

    def _evaluated(self, node: Apply, assignment: Assignment) -> Any:
        memo = {one: assignment[at] for one, at in self._labels.items() if at in assignment}
        return rec_eval(node, memo=memo)

    def _read(
        self, node: Apply, name: str, value: Any, found: dict[str, Any], alike: Same
    ) -> None:
        """Add the labels below `node` that `value` determines to `found`."""
        value = unwrap_scalar(value)
        if not self._is_readable(node):
            raise InvalidSearchSpace(
                f"{name}: HyperOpt computes it ({node.name}), so its value cannot be given"
            )
        if node in self._labels:
            if not self._fits(node, value):
                raise InvalidSearchSpace(f"{name}: {value!r:.100} is not one of its values")
            found[self._labels[node]] = value
        elif node.name in _NUMBERS:
            self._read(node.pos_args[0], name, value, found, alike)
        elif node.name == _CHOSEN:
            number = self._option(node, name, value, alike)
            found[self._labels[node.pos_args[0]]] = number
            self._read(node.pos_args[1 + number], name, value, found, alike)
        elif node.name == "dict":
            for inner, key, part in keys_of(dict(node.named_args), name, value):
                self._read(inner, key, part, found, alike)
        elif node.name == "pos_args":
            for inner, place, part in items_of(node.pos_args, name, value):
                self._read(inner, place, part, found, alike)

    def _option(self, node: Apply, name: str, value: Any, alike: Same) -> int:
        for whole in (True, False):
            for number, option in enumerate(node.pos_args[1:]):
                if self._matches(option, value, alike, whole=whole):
                    return number
        raise InvalidSearchSpace(f"{name}: {value!r:.100} is not one of its categories")

    def _matches(self, node: Apply, value: Any, alike: Same, *, whole: bool) -> bool:
        """True if `value` could come from `node`; keys may be missing unless it is `whole`."""
        value = unwrap_scalar(value)
        if node in self._labels:
            return self._fits(node, value)
        match node.name:
            case "literal":
                return type(node.obj) is type(value) and alike(node.obj, value)
            case "float" | "int":
                return self._matches(node.pos_args[0], value, alike, whole=whole)
            case "switch":
                options = node.pos_args[1:]
                return any(self._matches(one, value, alike, whole=whole) for one in options)
            case "dict":
                items = dict(node.named_args)
                return (
                    isinstance(value, Mapping)
                    and value.keys() <= items.keys()
                    and (not whole or len(value) == len(items))
                    and all(self._matches(items[k], value[k], alike, whole=whole) for k in value)
                )
            case "pos_args":
                return (
                    isinstance(value, (list, tuple))
                    and len(value) == len(node.pos_args)
                    and all(
                        self._matches(part, item, alike, whole=whole)
                        for part, item in zip(node.pos_args, value, strict=True)
                    )
                )
            case _:
                return True  # computed

    def _fits(self, node: Apply, value: Any) -> bool:
        """True if a parameter may have this value."""
        if not is_number(value):
            return False
        label = self._labels[node]
        if label in self._domains:
            return self._domains[label].domain.is_valid(value)
        dist = self.domain.params[label]
        if dist.name not in _BOUNDED:
            return True
        low, high, q = (
            dist.arg[part].obj if part in dist.arg else 0 for part in ("low", "high", "q")
        )
        return bool(low - q <= value <= high + q)


def _is_searched(value: Any) -> bool:
    if isinstance(value, (Apply, Domain)) or is_grid(value):
        return True
    if isinstance(value, (dict, list, tuple)):
        return any(map(_is_searched, value.values() if isinstance(value, dict) else value))
    return False


def _plain(value: Any) -> Any:
    """A value of the library with numbers of Python's own."""
    if type(value) is dict:
        return {key: _plain(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(_plain, value))
    return unwrap_scalar(value)


def _label(name: str) -> str:
    """A label that no expression of the user has."""
    return f"tune {name}"
