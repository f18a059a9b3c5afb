"""A parser whose errors name what is similar, with the usage of the command that was meant."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

_NEAR = 0.5


class Parser(argparse.ArgumentParser):
    """An ArgumentParser of a command, or of a group of commands."""

    commands: Any = None

    def add_subparsers(self, **given: Any) -> Any:
        self.commands = super().add_subparsers(**given)
        return self.commands

    def read(self, arguments: Sequence[str]) -> argparse.Namespace:
        """The arguments as `parse_args` reads them. Raises SystemExit."""
        self._check_command(arguments)
        found, rest = self.parse_known_args(arguments)
        if hasattr(found, "trials") and not any(word.startswith("-") for word in rest):
            # argparse takes no argument of a list after an option: `stop EXPERIMENT --yes TRIAL`.
            found.trials, rest = [*found.trials, *rest], []
        if rest:
            self._innermost(arguments).refuse(rest)
        return found

    def explain(self, arguments: Sequence[str]) -> NoReturn:
        """Print the help of the command that the arguments name, since its own are missing.
        Raises SystemExit."""
        self._innermost(arguments).print_help(sys.stderr)
        raise SystemExit(2)

    def refuse(self, rest: Sequence[str]) -> NoReturn:
        """Raises SystemExit, naming the arguments that this command does not have."""
        options = [name for name in self._option_string_actions if name.startswith("--")]
        given = [word.partition("=")[0] for word in rest if word.startswith("-")]
        near = [found for word in given for found in _near(word, options)]
        meant = f". Did you mean {' '.join(dict.fromkeys(near))}?" if near else ""
        if self.prog.endswith(" show") and len(rest) == 1 and not given:
            self.error(
                f"show takes one experiment. For a trial: holdfast logs EXPERIMENT {rest[0]}"
            )
        self.error(f"unrecognized arguments: {' '.join(rest)}{meant}")

    def _check_command(self, arguments: Sequence[str]) -> None:
        """Raises SystemExit for an unknown command. Options before it are the parser's own."""
        word = arguments[0] if arguments else "-"
        if self.commands is None or word.startswith("-"):
            return
        known = self.commands.choices
        if word not in known:
            near = _near(word, known)
            meant = f"Did you mean {near[0]}?" if near else f"There are {', '.join(known)}"
            self.error(f"there is no command {word!r}. {meant}")
        known[word]._check_command(arguments[1:])

    def _innermost(self, arguments: Sequence[str]) -> Parser:
        """The parser of the command that the arguments begin with."""
        known = {} if self.commands is None else self.commands.choices
        found: Parser | None = known.get(arguments[0]) if arguments else None
        return self if found is None else found._innermost(arguments[1:])


def _near(word: str, known: Iterable[str]) -> list[str]:
    import difflib  # only errors need it

    return difflib.get_close_matches(word, list(known), 1, _NEAR)
