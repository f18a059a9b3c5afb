"""Makes trials: asks the search for a config, and gives the trial its name, folder and resources.

Everything in here may call user code (a searcher, `sample_from`, name creators, a function of
resources). `runs_user_code` is true if it may; then the controller calls it in a thread.

A config has two forms: the user's, and the journal's, where an object of the user is its place in
`param_space`, so that a restore takes the current one, or a pickle.
"""

from __future__ import annotations

import random
import re
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.described import is_holdfast_class
from holdfast.experiment.user_objects.pickling import dumps, users_config
from holdfast.experiment.worker.objects import ObjectRef, references_in
from holdfast.global_numbers import seeded_numbers
from holdfast.plain_numbers import is_finite, is_number, plain_number
from holdfast.scheduler.events import (
    ConfigRefused,
    ExperimentSpec,
    Outlook,
    SearchEnded,
    Suggested,
)
from holdfast.scheduler.searchers.concurrency_limiter import Wrapper
from holdfast.scheduler.searchers.searcher import BasicVariantGenerator, Searcher, introduce
from holdfast.text.errors import named as error_text
from holdfast.trial.errors import InvalidConfig, TuneError
from holdfast.trial.resources import PlacementGroupFactory
from holdfast.trial.search_space.spaces import (
    Continued,
    added_variant,
    checked_config,
    chosen_of,
    could_suggest,
    named,
    overlaid,
    placed,
    placed_in,
    searched_in,
    without_searched,
)
from holdfast.trial.search_space.variants import Space, Variant
from holdfast.trial.space import check_drawn, has_user_code
from holdfast.trial.trial import TrialSpec
from holdfast.trial.values import (
    ABSENT,
    Opaque,
    Ref,
    check_nesting,
    excerpt,
    fold_values,
    format_tag,
    key_name,
    named_in_tag,
    seal,
    spread,
    summarize,
    value_at,
)
from holdfast.trial.values import (
    Path as ConfigPath,
)


def _recordable(outlook: Outlook | None) -> Outlook | None:
    """The outlook with Python's numbers; None if one is not finite. The journal takes no NaN, and
    a search of the user's own may expect it before its first result."""
    if outlook is None:
        return None
    best, gain = plain_number(outlook.best), plain_number(outlook.gain)
    if not (is_finite(best) and is_finite(gain)):
        return None
    return Outlook(best=best, gain=gain, is_little=bool(outlook.is_little))


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
                    kept.get(key), given.get(key, ABSENT), value, f"{name}/{key}" if name else key
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


_LONGEST_NAME = 180
_UNSAFE = re.compile(r"[^\w.,=+-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedTrial:
    """The argument of name creators: a trial that is about to be created."""

    trial_id: str
    trainable_name: str
    config: Mapping[str, Any]
    evaluated_params: Mapping[str, Any]
    experiment_tag: str

    def __str__(self) -> str:
        return f"{self.trainable_name}_{self.trial_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Naming:
    """The user's functions that name trials and their folders; each gets a `ProposedTrial`."""

    trial: Callable[[Any], str] | None = None
    directory: Callable[[Any], str] | None = None

    @property
    def chooses(self) -> bool:
        return self.trial is not None or self.directory is not None

    def name_of(self, proposed: ProposedTrial) -> str:
        if self.trial is None:
            return str(proposed)
        return _checked(self.trial(proposed), "trial_name_creator")

    def dirname_of(self, proposed: ProposedTrial, name: str, stamp: str) -> str:
        """`name` is the trial's; `stamp` ends the folder's default name."""
        if self.directory is None:
            return _folder(f"{name}_{proposed.experiment_tag}") + stamp
        return _folder(_checked(self.directory(proposed), "trial_dirname_creator"))


Resources = PlacementGroupFactory | Callable[[dict[str, Any]], PlacementGroupFactory]


class TrialMaker:
    """Makes the trials of an experiment in the folder `root`. `taken` are names of folders that
    are in use; `stamp` returns the end of a folder's name."""

    def __init__(
        self,
        trainable: str,
        forms: ConfigForms,
        naming: Naming,
        resources: Resources,
        *,
        root: Path,
        taken: set[str],
        stamp: Callable[[], str],
    ) -> None:
        self._trainable, self._forms = trainable, forms
        self._naming, self._resources = naming, resources
        self._root, self._dirnames, self._stamp = root, taken, stamp

    @property
    def runs_user_code(self) -> bool:
        return not isinstance(self._resources, PlacementGroupFactory) or self._naming.chooses

    def make(self, trial_id: str, variant: Variant) -> TrialSpec:
        """A trial with this config. Raises what the user's functions raise, and NotPicklable."""
        config = self._forms.kept(variant.config)
        tag = format_tag(variant.index, variant.evaluated)
        name, dirname = self._named(
            ProposedTrial(
                trial_id=trial_id,
                trainable_name=self._trainable,
                config=self._forms.folded(variant.config),
                evaluated_params=variant.evaluated,
                experiment_tag=tag,
            )
        )
        return TrialSpec(
            trial_id=trial_id,
            index=variant.index,
            name=name,
            dirname=dirname,
            config=config,
            tag=tag,
            resources=self._request(config),
        )

    def repeat(self, trial_id: str, index: int, spec: TrialSpec) -> TrialSpec:
        """A trial of the same settings. Raises as `make`."""
        varied = named_in_tag(spec.tag, spec.index, spec.config)
        tag = format_tag(index, varied)
        name, dirname = self._named(
            ProposedTrial(
                trial_id=trial_id,
                trainable_name=self._trainable,
                config=self._forms.recorded(spec.config) if self._naming.chooses else {},
                evaluated_params=varied,
                experiment_tag=tag,
            )
        )
        return replace(spec, trial_id=trial_id, index=index, name=name, dirname=dirname, tag=tag)

    def _named(self, proposed: ProposedTrial) -> tuple[str, str]:
        """The name of a trial and of its folder, which is taken from now on."""
        name = self._naming.name_of(proposed)
        dirname = self._naming.dirname_of(proposed, name, self._stamp())
        if self._naming.chooses and self._is_taken(dirname):
            # Two trials in one folder would overwrite each other.
            dirname = f"{dirname}_{proposed.trial_id}"
        self._dirnames.add(dirname)
        return name, dirname

    def _is_taken(self, dirname: str) -> bool:
        return dirname in self._dirnames or (self._root / dirname).exists()

    def _request(self, config: dict[str, Any]) -> PlacementGroupFactory:
        if isinstance(self._resources, PlacementGroupFactory):
            return self._resources
        return self._resources(self._forms.users(config))


def _checked(name: object, creator: str) -> str:
    if not isinstance(name, str) or not name.strip("./"):
        raise InvalidConfig(f"{creator} must return a non-empty string, not {name!r}")
    return name


def _folder(name: str) -> str:
    """`name` as a folder's name that every file system accepts: their limits are in bytes."""
    return _UNSAFE.sub("_", name).encode()[:_LONGEST_NAME].decode(errors="ignore")


# How often a search algorithm may suggest the same config in a row.
MOST_ALIKE = 100
_MOST_AHEAD = 100.0


class Proposer:
    """Makes each trial of an experiment: `propose` returns the next one."""

    def __init__(
        self,
        spec: ExperimentSpec,
        param_space: Mapping[str, Any],
        search: BasicVariantGenerator | Searcher,
        resources: Resources,
        naming: Naming,
        *,
        root: Path,
        made: Sequence[TrialSpec] = (),
        values: Mapping[Any, Any] | None = None,
        trusted: bool = True,
        stamp: Callable[[], str] = lambda: time.strftime("_%Y-%m-%d_%H-%M-%S"),
    ) -> None:
        """`root` is the experiment's directory; `made` are the existing trials, in order. `values`
        are the user's objects to which configs refer, if not those of `param_space`. `stamp`
        returns the end of a folder's name. Unless they are `trusted`, recorded answers are not
        unpickled.

        Raises InvalidSearchSpace for a space that cannot be sampled.
        """
        self._spec = spec
        self._param_space = param_space
        self._forms = ConfigForms(
            param_space,
            param_space if values is None else values,
            space_number=spec.space_number,
            trusted=trusted,
        )
        self._maker = TrialMaker(
            spec.trainable,
            self._forms,
            naming,
            resources,
            root=root,
            taken={trial.dirname for trial in made},
            stamp=stamp,
        )
        self._search = search
        self._space: Space | None = None
        # What the trials so far have recorded of `Searcher.asked_space`.
        self._asked = {name: text for trial in made for name, text in trial.asked.items()}
        # The numbers of the trials that a person has added, and of fresh runs. They do not count
        # for the others: a grid, a random stream and `total` number only those of the search.
        self._added = [trial.index for trial in made if trial.is_added]
        self._count = len(made)
        self._newest: Mapping[str, Any] | None = None
        self._alike = 0
        self._ran_out_at: int | None = None
        # Trials of a former search space: the searcher does not get their results.
        self.skipped: set[str] = set()
        # False after `open` has failed: the search is not asked, so that its own error is the only
        # one.
        self.is_open = True
        # Why the searcher does not learn from the config that a person has added last.
        self.unlearned = ""
        self._has_user_code = has_user_code(param_space)
        self._must_answer: Sequence[ConfigPath] = ()
        if isinstance(search, BasicVariantGenerator):
            self._space = Space(
                param_space,
                # `points_to_evaluate` were for the first samples, of the first space.
                points_to_evaluate=() if spec.space_number else search.points_to_evaluate,
                constant_grid_search=search.constant_grid_search,
            )
        self._continued: Continued | None = None
        if self._space is not None and spec.space_number:
            former = made[: spec.space_from]
            configs = [trial.config for trial in former if not trial.is_added]
            self._continued = Continued(param_space, self._space.grid_size, configs)
        # The number of trials that the search makes; None for no limit.
        self.total: int | None = self.total_of(spec.num_samples)

    def total_of(self, num_samples: int) -> int | None:
        """How many trials so many samples make; None without a limit."""
        if self._space is None:
            return num_samples if num_samples > 0 else None
        if self._continued is None:
            return self._space.total(num_samples)
        left = self._continued.total(num_samples)
        return None if left is None else self._ordinal(self._spec.space_from) + left

    @property
    def fixed_config(self) -> dict[str, Any]:
        """The config of each trial if there is nothing to search, as in the space of a trainer."""
        assert self._space is not None
        return self._forms.kept(self._space.variant(0, random.Random(0)).config)

    def extend(self, num_samples: int) -> None:
        """A person has changed the number of samples."""
        self.total = self.total_of(num_samples)

    def _ordinal(self, number: int) -> int:
        """The number of a trial among those that the search has made."""
        return number - bisect_left(self._added, number)

    @property
    def notices(self) -> tuple[str, ...]:
        return () if self._space is None else self._space.notices

    @property
    def runs_user_code(self) -> bool:
        return self._space is None or self._maker.runs_user_code or self._has_user_code

    @property
    def searcher(self) -> Searcher | None:
        """The search algorithm that gets results; None for random and grid search."""
        return self._search if isinstance(self._search, Searcher) else None

    @property
    def look_ahead(self) -> float:
        """See `Searcher.look_ahead`. Raises InvalidConfig if it is not such a number."""
        share = self._search.look_ahead
        if not is_number(share) or not share >= 0:
            name = type(self._search).__name__
            raise InvalidConfig(f"{name}.look_ahead must be a number, 0 or more, not {share!r}")
        return min(float(share), _MOST_AHEAD)

    @property
    def ended_because(self) -> str:
        """Why the search ended before it had made all its trials; "" if it did not."""
        searcher = self.searcher
        if searcher is None:
            return ""
        name = type(searcher).__name__
        if self._ran_out_at is not None:
            return (
                f"{name} found no further config: the search is over after {self._ran_out_at} of "
                f"{self.total} trials"
            )
        if self._alike <= MOST_ALIKE * searcher.repeats:
            return ""
        return (
            f"{name} has suggested the same config {self._alike} times in a "
            f"row: the search is over. tune.search.Repeater runs each config several times"
        )

    @property
    def nothing_to_wait_for(self) -> str:
        return (
            f"{type(self._search).__name__}.suggest() returned None while no trial is running or "
            f"queued, so it would never be called again. Return Searcher.FINISHED to end it"
        )

    def open(self) -> None:
        """Give the searcher its goal and space. Raises InvalidConfig if no one would search the
        space."""
        assert isinstance(self._search, Searcher)
        spec, space = self._spec, self._param_space
        self.is_open = False
        given = {"seed": spec.seed, "time_budget_s": spec.budget_s}
        taken = introduce(self._search, spec.metric, spec.mode, space, **given)
        searched = list(searched_in(self._param_space))
        if taken:
            self._must_answer = searched
        elif searched:
            raise InvalidConfig(
                f"param_space leaves {named(searched)} to be searched, but "
                f"{type(self._search).__name__} searches only a space of its own: define them "
                f"there, and leave only fixed values in param_space"
            )
        self.is_open = True

    def propose(self, index: int) -> Suggested | SearchEnded | None:
        """Trial number `index`, or a later one if a trial was added meanwhile; SearchEnded if
        there is none; None for "not now".

        Raises InvalidSearchSpace or whatever the user's code raises.
        """
        if not self.is_open:
            return None
        if self._added:
            index = max(index, self._count)
        ordinal = self._ordinal(index)
        if self.total is not None and ordinal >= self.total:
            return SearchEnded()
        answer = self._proposed(index, is_last=ordinal + 1 == self.total)
        if isinstance(answer, Suggested):
            self._count = index + 1
        return answer

    def _proposed(self, index: int, *, is_last: bool) -> Suggested | SearchEnded | None:
        trial_id = self._id_of(index)
        if self._space is not None:
            return Suggested(spec=self._maker.make(trial_id, self._draw(index)), is_last=is_last)
        assert isinstance(self._search, Searcher)
        with self._numbers_of_search(index):
            answer = self._search.suggest(trial_id)
        is_over = answer == Searcher.FINISHED
        self._ran_out_at = self._ordinal(index) if is_over and self.total is not None else None
        if is_over:
            return SearchEnded()
        if answer is None:
            return None
        check_nesting(answer, f"{type(self._search).__name__}.suggest() returned a config")
        spec = replace(
            self._maker.make(trial_id, self._merged(index, answer)), asked=self._newly_asked()
        )
        self._note_repeat(spec.config)
        if self.ended_because:
            return SearchEnded()
        assert isinstance(answer, Mapping)  # checked by `_merged`
        sealed = self._forms.kept(dict(answer))
        kept = None if sealed == spec.config else sealed
        outlook = _recordable(self._search.outlook)
        return Suggested(spec=spec, answer=kept, is_last=is_last, outlook=outlook)

    def _id_of(self, index: int) -> str:
        return f"{self._spec.run}_{index:05d}"

    # -- what a person adds ---------------------------------------------------------------------

    def checked_config(self, config: Any) -> tuple[dict[str, Any], list[str]]:
        """A config that a person adds, and a line for each value that its domain never has.

        Raises InvalidConfig for what is not a table of JSON values, and for an unknown name.
        """
        return checked_config(self._param_space, config, self._others())

    def _others(self) -> list[str] | None:
        """The names in a space of the searcher's own; None if they are not known."""
        if self.searcher is None or any(searched_in(self._param_space)):
            return []
        own = self._spec.options.get("search_space", ())
        return [key_name(tuple(part["path"])) for part in own] or None

    def propose_added(self, index: int, config: Mapping[str, Any]) -> Suggested | ConfigRefused:
        """A trial with this config of a person; the search space gives the values that it lacks.

        It has its own random stream. The searcher does not make it, but hears of it, if it could;
        otherwise `unlearned` says why not.
        """
        self.unlearned = ""
        index = max(index, self._count)
        stream = f"added/{len(self._added)}"
        try:
            with self._numbers(stream):
                rng = random.Random(f"{self._spec.seed}/{stream}")
                variant = added_variant(self._param_space, config, rng, index)
                spec = replace(self._maker.make(self._id_of(index), variant), is_added=True)
        except TuneError as error:
            return ConfigRefused(why=str(error))
        except Exception as error:  # the user's code does not fit this config
            return ConfigRefused(why=f"{type(error).__name__}: {error}")
        self._added.append(index)
        self._count = index + 1
        if self.searcher is None:
            return Suggested(spec=spec)
        answer = self._forms.kept(chosen_of(self._param_space, variant.config))
        suggested = Suggested(spec=spec, answer=None if answer == spec.config else answer)
        if why := self.replay_suggestion(suggested):
            name = type(self._innermost).__name__
            said = f"does not learn from the added trial {spec.trial_id}, which runs"
            self.unlearned = f"{name} {said}: {why}"
        return suggested

    def propose_again(self, index: int, spec: TrialSpec) -> Suggested:
        """A trial that runs these settings again. The searcher does not hear of it: it is over,
        and what it has suggested must not change.

        Raises what the user's functions raise.
        """
        index = max(index, self._count)
        made = self._maker.repeat(self._id_of(index), index, spec)
        self._added.append(index)
        self._count = index + 1
        self.skipped.add(made.trial_id)
        self.unlearned = ""
        return Suggested(spec=made)

    def _deaf_because(self, spec: TrialSpec, answer: dict[str, Any]) -> str:
        """Pass a trial that a person has added to the searcher. Returns why it does not take it,
        "" if it does."""
        assert isinstance(self._search, Searcher)
        if not self._could_suggest(answer):
            return "it could not have suggested it"
        try:
            is_taken = self._search.take_added(spec.trial_id, answer)
        except Exception as error:  # it did not expect this config
            return f"it raised {error_text(error)}"
        return "" if is_taken else "it takes no config that it has not suggested"

    def _newly_asked(self) -> dict[str, str]:
        assert isinstance(self._search, Searcher)
        current = self._search.asked_space.items()
        new = {name: text for name, text in current if self._asked.get(name) != text}
        self._asked |= new
        return new

    def replay_suggestion(self, suggested: Suggested) -> str:
        """Replay to the searcher what it suggested before a restore. Returns why it does not take
        a trial that a person has added."""
        assert isinstance(self._search, Searcher)
        spec = suggested.spec
        if spec.confirms:
            self.skipped.add(spec.trial_id)
            return ""
        kept = spec.config if suggested.answer is None else suggested.answer
        answer = self._forms.recorded(kept)
        if spec.is_added:
            with self._numbers(f"added/{bisect_left(self._added, spec.index)}/heard"):
                why = self._deaf_because(spec, answer)
            if why:
                self.skipped.add(spec.trial_id)
            return why
        if spec.index < self._spec.space_from and not self._could_suggest(answer):
            self.skipped.add(spec.trial_id)
            return ""
        self._note_repeat(spec.config)
        with self._numbers_of_search(spec.index):
            self._search.recall(spec.trial_id, answer)
        return ""

    def _could_suggest(self, answer: Mapping[str, Any]) -> bool:
        """Whether the searcher could suggest this now; True if it has its own space, which is
        unchanged."""
        searched = set(map(key_name, searched_in(self._param_space)))
        return not searched or could_suggest(self._param_space, searched, answer)

    def _note_repeat(self, config: Mapping[str, Any]) -> None:
        """Count how often in a row the searcher has suggested this config."""
        self._alike = self._alike + 1 if config == self._newest else 1
        self._newest = config

    def _draw(self, index: int) -> Variant:
        space, spec = self._space, self._spec
        assert space is not None
        number = self._ordinal(index)
        if self._continued is not None:
            number = self._continued.variant(number - self._ordinal(spec.space_from))
        stream = str(space.stream(number))
        if self._continued is not None:
            stream = f"space {spec.space_number}/{stream}"
        with self._numbers(stream) if self._has_user_code else nullcontext():
            variant = space.variant(number, random.Random(f"{spec.seed}/{stream}"))
        return replace(variant, index=index)

    def _numbers(self, stream: str) -> AbstractContextManager[None]:
        """Where the user's functions draw from `random` and `numpy.random`: they draw the same
        after a restore, and in another run with this seed."""
        return seeded_numbers(f"{self._spec.seed}/{stream}/functions")

    def _numbers_of_search(self, index: int) -> AbstractContextManager[None]:
        """As `_numbers`, for a search algorithm of the user."""
        own = is_holdfast_class(type(self._innermost))
        return nullcontext() if own else self._numbers(str(self._ordinal(index)))

    @property
    def _innermost(self) -> BasicVariantGenerator | Searcher:
        search = self._search
        while isinstance(search, Wrapper):
            search = search.searcher
        return search

    def _merged(self, index: int, answer: Any) -> Variant:
        if not isinstance(answer, Mapping):
            raise TuneError(
                f"{type(self._search).__name__}.suggest() must return a dict, None or "
                f"Searcher.FINISHED, not {answer!r:.100}"
            )
        if missing := [path for path in self._must_answer if value_at(answer, path) is ABSENT]:
            raise TuneError(
                f"{type(self._search).__name__}.suggest() returned no value for "
                f"{named(missing)}, which param_space leaves to the search: each config needs "
                f"all of them. Leave out of param_space what only some configs have"
            )
        check_drawn(answer, f"{type(self._search).__name__}.suggest()")
        fixed = Space(without_searched(self._param_space)).variant(0, random.Random(0))
        config = overlaid(fixed.config, answer)
        return Variant(index=index, config=config, evaluated=spread(answer))

    def with_users_config(
        self,
        question: Mapping[str, Any],
        ask: Callable[[Mapping[str, Any]], Mapping[str, Any]],
        about: str = "",
    ) -> dict[str, Any]:
        """See `ConfigForms.with_users_config`. `about` differs from question to question, and says
        which numbers the user's functions draw."""
        with self._numbers(f"scheduler/{about}"):
            return self._forms.with_users_config(question, ask)
