"""Parses the JSON of a snapshot trial by trial.

The plain data of 100,000 trials takes 440 MiB, four times as much as the trials themselves.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from holdfast.trial.decoding import decode
from holdfast.trial.trial import Trial

_NO_SPACE = re.compile(r"[^ \t\n\r]")
Hook = Callable[[dict[str, Any]], Any]


def parse(text: str, hook: Hook | None, *, knows: Callable[[Any], bool]) -> Any:
    """The fields of the snapshot's file as plain data, but with a tuple of Trials in
    `["machine"]["trials"]`, if it `knows` the format of the file, which comes before.

    `hook` is that of `json.loads`. Raises ValueError if this is not JSON, UnreadableRecord for an
    invalid trial, RecursionError.
    """
    walk = _Walk(text, hook)

    def machine(found: dict[str, Any]) -> Any:
        if not knows(found.get("format")) or not walk.begins("{"):
            return walk.value()
        return walk.table({"trials": lambda _: walk.trials()})

    try:
        plain = walk.table({"machine": machine}) if walk.begins("{") else walk.value()
        walk.expect("")
    except IndexError:
        raise ValueError("it ends too early") from None
    return plain


class _Walk:
    """A walk through the text of a JSON value."""

    def __init__(self, text: str, hook: Hook | None) -> None:
        self._text = text
        self._decode = json.JSONDecoder(object_hook=hook).raw_decode
        self._at = 0

    def begins(self, character: str) -> bool:
        """Whether the next value begins with it."""
        self._at = self._next(self._at)
        return self._text[self._at] == character

    def value(self) -> Any:
        found, self._at = self._decode(self._text, self._at)
        return found

    def expect(self, character: str) -> None:
        """The next character, "" for the end; then the walk is at the next value."""
        at = self._next(self._at)
        if self._text[at : at + 1] != character:
            raise ValueError(f"{self._text[at : at + 10]!r} at {at} instead of {character!r}")
        self._at = self._next(at + 1)

    def table(self, own: dict[str, Callable[[dict[str, Any]], Any]]) -> dict[str, Any]:
        """An object; `own` has readers of values by their names, which get the values before."""
        found: dict[str, Any] = {}
        for _ in self._items("{", "}"):
            name = self.value()
            if type(name) is not str:
                raise ValueError(f"{name!r:.50} is not the name of a value")
            self.expect(":")
            found[name] = own[name](found) if name in own else self.value()
        return found

    def trials(self) -> Any:
        """The trials; anything but a list as it is."""
        if not self.begins("["):
            return self.value()
        names: dict[str, str] = {}
        found: list[Trial] = []
        text, decode_at = self._text, self._decode
        for _ in self._items("[", "]"):
            plain, at = decode_at(text, self._at)
            found.append(_trial(plain, names))
            while text.startswith(", {", at):  # as we write it: a tenth faster
                plain, at = decode_at(text, at + 2)
                found.append(_trial(plain, names))
            self._at = at
        return tuple(found)

    def _next(self, at: int) -> int:
        """Where the next character that is not white space is, from `at` on."""
        found = _NO_SPACE.search(self._text, at)
        return len(self._text) if found is None else found.start()

    def _items(self, opening: str, closing: str) -> Iterator[None]:
        """Yields at each item, which the caller then reads."""
        self.expect(opening)
        if self.begins(closing):
            self.expect(closing)
            return
        while True:
            yield
            if self.begins(closing):
                self.expect(closing)
                return
            self.expect(",")


def _trial(plain: Any, names: dict[str, str]) -> Trial:
    """The trial, whose row has the `names` of the others' rows: equal texts, once in memory."""
    if type(plain) is dict and type(row := plain.get("row")) is dict:
        plain["row"] = {names.setdefault(name, name): value for name, value in row.items()}
    trial: Trial = decode(Trial, plain)
    return trial
