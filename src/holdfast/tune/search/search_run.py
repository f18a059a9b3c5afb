"""The state of a search over a library during one `fit()`."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.described import Call
from holdfast.trial.search_space.parameters import Assignment
from holdfast.tune.search.saved_search import EndedTrial
from holdfast.tune.search.study import AssignmentCodec, Losses, Query, SearchGoal, Study


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatedPoint:
    """A config that was tried elsewhere; `values` is None if it failed."""

    config: Mapping[str, Any]
    values: tuple[Any, ...] | None
    pruned: bool = False
    steps: tuple[float, ...] = ()

    def call(self) -> Call:
        """The call that adds it."""
        failed = self.values is None
        more = {"error": failed, "pruned": self.pruned, "intermediate_values": list(self.steps)}
        return "add_evaluated_point", (dict(self.config), list(self.values or ())), more


@dataclass(slots=True, kw_only=True)
class SearchRun:
    """The state of one `fit()`. Only the journal stores it."""

    goal: SearchGoal
    terms: AssignmentCodec
    study: Study
    seed: int
    points: list[Assignment]
    number: int = 0
    suggested: int = 0
    is_seen: bool = False
    asked: dict[str, tuple[Query, Assignment]] = field(default_factory=dict)
    ended: list[EndedTrial] = field(default_factory=list)

    def tell(self, query: Query, assignment: Assignment, losses: Losses | None) -> None:
        self.study.tell(query, assignment, losses)
        self.ended.append(EndedTrial(values=assignment, losses=losses, pruned=query.pruned))

    def query(self, trial_id: str = "", *, pruned: bool = False) -> Query:
        seed = int(random.Random(f"{self.seed}/{self.number}").random() * 2**32)
        return Query(
            number=self.number,
            seed=seed,
            trial_id=trial_id,
            is_given=not trial_id or self.suggested < len(self.points),
            pruned=pruned,
        )

    def take(self, query: Query, assignment: Assignment) -> Assignment:
        assignment = self.study.take(query, assignment) or assignment
        self.note(query, assignment)
        return assignment

    def skip(self) -> None:
        self.number += 1
        self.suggested += 1

    def note(self, query: Query, assignment: Assignment) -> None:
        self.number += 1
        if query.trial_id:
            self.suggested += 1
            self.asked[query.trial_id] = (query, assignment)
