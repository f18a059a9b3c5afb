"""The words of a trial's command: placeholders for its parameters and facts. Pure.

`${...}` has the names of W&B's macros, `{lr}` is a parameter, `{{lr}}` the text {lr}. All else in
braces stays as it is: shell variables, formats, JSON. Values are put in after the command was
split into words, so a value never becomes several words, and no shell reads it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from holdfast.dataclass import dataclass
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.metrics import near_text
from holdfast.trial.values import spread

_MACRO = re.compile(r"\$\{([^{}]*)\}")
_PARAMETER = re.compile(r"\{\{([A-Za-z_][\w./-]*)\}\}|\{([A-Za-z_][\w./-]*)\}")
# A word that is nothing but a placeholder, or an option with one.
_ALONE = re.compile(r"(?:[\w.-]+=)?\{([A-Za-z_][\w./-]*)\}")
_ENVVAR = "envvar:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The values of the macros, besides the parameters."""

    program: str | None
    here: str
    config_file: str
    interpreter: str
    environ: Mapping[str, str]


def flat(config: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters by their names, nested ones as `optimizer.lr`."""
    return {str(name): value for name, value in spread(config, ".").items()}


def text_of(value: Any) -> str:
    """A value in an argument: text as it is, `True`, `null`, numbers, and JSON for the rest."""
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, (list, tuple, dict)):
        return json.dumps(value, default=str)
    return str(value)


def yaml_of(value: Any) -> str:
    """A value in YAML 1.1, which W&B reads: there 1e-05 and NaN are text."""
    if isinstance(value, dict):
        pairs = (f"{json.dumps(str(name))}: {yaml_of(item)}" for name, item in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(yaml_of, value))}]"
    if not isinstance(value, float):
        return json.dumps(value, default=str, ensure_ascii=False)
    text = repr(value)
    if not math.isfinite(value):
        return text.replace("inf", ".inf").replace("nan", ".nan")
    return text if "." in text else text.replace("e", ".0e")


def words_of(template: Sequence[str], config: Mapping[str, Any], facts: Facts) -> list[str]:
    """The words of the command for one config. Raises InvalidConfig."""
    values = flat(config)
    return [word for part in template for word in _words(part, config, values, facts)]


def check_words(template: Sequence[str], program: str | None) -> None:
    """Raises InvalidConfig for a macro in the wrong place."""
    for part in template:
        for macro in _MACRO.findall(part):
            if macro in _LISTS and part != f"${{{macro}}}":
                raise InvalidConfig(
                    f"${{{macro}}} becomes several words, so it must be a word of its own. To put "
                    f"one value into a word, write {{name}}"
                )
            if macro == "program" and not program:
                raise InvalidConfig("the command has ${program}, and no program is named")


def misspelled(template: Sequence[str], names: Iterable[str]) -> Iterator[str]:
    """Placeholders that stay as they are, probably by mistake: a macro with what it resembles, a
    word that is an unknown placeholder.

    Raises InvalidConfig for what resembles a parameter.
    """
    macros, written = placeholders(template)
    known = [*_LISTS, *_TEXTS]
    for macro in sorted(macros.difference(known)):
        if near := near_text([macro], dict.fromkeys(known)):
            yield f"${{{macro}}} in the command stays as it is.{near}"
    parameters = list(names)
    for name in sorted(written.difference(parameters)):
        if near := near_text([name], dict.fromkeys(parameters)):
            raise InvalidConfig(
                f"{{{name}}} in the command is not a parameter.{near} For the text itself, write "
                f"{{{{{name}}}}}"
            )
        if any((found := _ALONE.fullmatch(part)) and found[1] == name for part in template):
            yield (
                f"{{{name}}} in the command is not a parameter, and stays as it is. The "
                f"parameters are {', '.join(parameters)}"
            )


def unused(template: Sequence[str], names: Sequence[str]) -> Iterator[str]:
    """A line for each parameter that the command does not name, if it does not get all of them."""
    macros, written = placeholders(template)
    if macros & PASSES_PARAMETERS:
        return
    reads_file = not written.intersection(names)  # then it gets them all from a file
    for name in names:
        as_shell = any(re.search(rf"\$\{{?{re.escape(name)}\b", part) for part in template)
        if name in written or (reads_file and not as_shell):
            continue
        shell = f" (${name} stays as it is: no shell reads the command)" if as_shell else ""
        where = f"write {{{name}}} where it belongs"
        yield f"parameter {name} is not used by the command{shell}: {where}"


def macros_in(values: Mapping[str, Any]) -> Iterator[str]:
    """A line for each parameter whose value names a macro: only the command has macros."""
    for name, value in values.items():
        named = isinstance(value, str) and set(_MACRO.findall(value)) & {*_LISTS, *_TEXTS}
        if named:
            yield (
                f"parameter {name}: {value!r:.80} is passed as it is: ${{...}} has a meaning in "
                f"the command only. Write it there, such as --{name}={value:.80}"
            )


def placeholders(template: Sequence[str]) -> tuple[set[str], set[str]]:
    """The macros and the parameters that a command names."""
    macros = {macro for part in template for macro in _MACRO.findall(part)}
    bare = [_MACRO.sub("", part) for part in template]
    names = {found[1] for part in bare for found in _PARAMETER.findall(part) if found[1]}
    return macros, {name.replace("/", ".") for name in names}


def _words(
    part: str, config: Mapping[str, Any], values: Mapping[str, Any], facts: Facts
) -> Iterator[str]:
    alone = _MACRO.fullmatch(part)
    if alone is not None and alone[1] in _LISTS:
        yield from _LISTS[alone[1]](values)
        return
    pieces, at = [], 0
    for found in _MACRO.finditer(part):
        pieces += [_filled(part[at : found.start()], values), _text(found[1], config, facts)]
        at = found.end()
    yield "".join([*pieces, _filled(part[at:], values)])


def _filled(text: str, values: Mapping[str, Any]) -> str:
    """The text with the values of its parameters."""

    def value_of(found: re.Match[str]) -> str:
        name = (found[1] or found[2]).replace("/", ".")
        if name not in values:
            return found[0]
        return text_of(values[name]) if found[2] else f"{{{found[1]}}}"

    return _PARAMETER.sub(value_of, text)


def _text(macro: str, config: Mapping[str, Any], facts: Facts) -> str:
    if macro.startswith(_ENVVAR):
        name = macro.removeprefix(_ENVVAR)
        if name not in facts.environ:
            raise InvalidConfig(f"the command has ${{{macro}}}, and {name} is not set here")
        return facts.environ[name]
    made = _TEXTS.get(macro)
    return f"${{{macro}}}" if made is None else made(config, facts)


def _hyphens(values: Mapping[str, Any]) -> list[str]:
    return [f"--{name}={text_of(value)}" for name, value in values.items()]


def _no_hyphens(values: Mapping[str, Any]) -> list[str]:
    return [f"{name}={text_of(value)}" for name, value in values.items()]


def _no_equals(values: Mapping[str, Any]) -> list[str]:
    return [word for name, value in values.items() for word in (f"--{name}", text_of(value))]


def _no_boolean_flags(values: Mapping[str, Any]) -> list[str]:
    return [
        f"--{name}" if value is True else f"--{name}={text_of(value)}"
        for name, value in values.items()
        if value is not False
    ]


_LISTS: Mapping[str, Callable[[Mapping[str, Any]], list[str]]] = {
    "args": _hyphens,
    "args_no_hyphens": _no_hyphens,
    "args_no_boolean_flags": _no_boolean_flags,
    "args_no_equals": _no_equals,
    "args_append_hydra": lambda values: [f"+{word}" for word in _no_hyphens(values)],
    "args_override_hydra": lambda values: [f"++{word}" for word in _no_hyphens(values)],
}
_TEXTS: Mapping[str, Callable[[Mapping[str, Any], Facts], str]] = {
    "args_json": lambda config, facts: json.dumps(config, default=str),
    "args_json_file": lambda config, facts: facts.config_file,
    "env": lambda config, facts: "/usr/bin/env",
    "here": lambda config, facts: facts.here,
    "interpreter": lambda config, facts: facts.interpreter,
    "program": lambda config, facts: facts.program or "",
}
PASSES_PARAMETERS: Final = frozenset({*_LISTS, "args_json", "args_json_file"})
