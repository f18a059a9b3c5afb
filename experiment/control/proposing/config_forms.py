"""The two forms of a trial's config: as the user's code has it, and as the journal stores it.

In the journal an object of the user is its place in `param_space`, so that a restore takes the
current one, or a pickle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from holdfast.experiment.user_objects.pickling import dumps, users_config
from holdfast.experiment.worker.objects import ObjectRef, references_in
from holdfast.trial.nesting import check_nesting
from holdfast.trial.readable import excerpt
from holdfast.trial.search_space.spaces import placed, placed_in
from holdfast.trial.values import Opaque, Ref, fold_values, key_name, seal, summarize

_ABSENT = object()


class ConfigForms:
    """The configs of one search space. `values` are the user's objects to which configs refer.
    Unless they are `trusted`, recorded answers are not unpickled."""

    def __init__(
        self,
        param_space: Mapping[str, Any],
        values: Mapping[Any, Any],
        *,
        space_number: int,
        trusted: bool,
    ) -> None:
        self._param_space, self._values = param_space, values
        self._space_number, self._trusted = space_number, trusted

    def kept(self, config: dict[str, Any]) -> dict[str, Any]:
        """The config in the form that the journal stores. Raises NotPicklable."""
        return placed_in(seal(config, self._sealed), self._space_number)

    def users(self, kept: Mapping[str, Any]) -> dict[str, Any]:
        """A config that was made here, with the user's own objects."""
        return users_config(kept, self._values)

    def recorded(self, kept: Mapping[str, Any]) -> dict[str, Any]:
        """As `users`, of a config from the journal. Raises TuneError for an object that is pickled
        there, if it is not trusted."""
        return users_config(kept, self._values, trusted=self._trusted)

    def folded(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """A config with the values of the search space in place of references to them."""
        found: dict[str, Any] = fold_values(config, self._param_space)
        return found

    def with_users_config(
        self,
        question: Mapping[str, Any],
        ask: Callable[[Mapping[str, Any]], Mapping[str, Any]],
    ) -> dict[str, Any]:
        """Call `ask` with the user's own objects in the config of the question. Objects that it
        leaves alone in its answer get their references back. Raises what `ask` raises, and
        NotPicklable for a value that cannot be stored."""
        kept: Mapping[str, Any] = question.get("config", {})
        given = self.users(kept)
        answer = dict(ask({**question, "config": given}))
        if "config" in answer:
            check_nesting(answer["config"], "the scheduler's config")
            answer["config"] = self._as_kept(kept, given, answer["config"])
        return answer

    def _as_kept(self, kept: Any, given: Any, answered: Any, name: str = "") -> Any:
        """The answer, with references in place of the user's objects that are still those of
        `given`, also if a dict around them was replaced."""
        if answered is given:
            return kept
        if type(kept) is type(given) is type(answered) is dict:
            return {
                key: self._as_kept(
                    kept.get(key), given.get(key, _ABSENT), value, f"{name}/{key}" if name else key
                )
                for key, value in answered.items()
            }
        return seal({name: answered}, self._sealed)[name]

    def _sealed(self, path: tuple[str | int, ...], value: Any) -> Opaque | Ref:
        """A reference from the search space as its place there, so that a restore takes the
        current one; anything else pickled."""
        if isinstance(value, ObjectRef):
            for place, ref in references_in(self._param_space):
                if ref == value:
                    there = Ref(path=place, index=None, summary=summarize(value))
                    return placed(there, self._space_number)
        pickled = dumps(value, f"config[{key_name(path)!r}]")
        return Opaque(pickled=pickled, summary=summarize(value), shown=excerpt(value))
