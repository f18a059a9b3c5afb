"""Free resources go to waiting trials first, then to new ones, as long as the budget lasts.

An elastic trial can run with fewer bundles than it asks for. It starts with as many as are free,
continues with one fewer when one is lost, and takes more at a checkpoint when more are free. A
lost bundle counts as gone for a while, because nothing reports that it is back; but if a node was
lost with it, or another one joins, it is known what there is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import islice

from holdfast.scheduler.confirming import CANDIDATES, fresh_runs
from holdfast.scheduler.effects import Effect, Launch, Release, Suggest
from holdfast.scheduler.nodes.cluster import (
    MANY,
    may_fit,
    offer_text,
)
from holdfast.scheduler.placement import Placement
from holdfast.scheduler.state import State
from holdfast.trial.errors import OF_THE_PROCESS, Failure
from holdfast.trial.events import Launched
from holdfast.trial.resources import PlacementGroupFactory, comparable
from holdfast.trial.trial import Status, Trial, TrialSpec

# While so many questions wait for the user's code, no trial is added: one that waits before its
# start holds no resources, so a slow scheduler would get trials without end.
_MOST_ASKED = 16
# The trials whose times tell how long the next one takes.
_NEWEST, _MARGIN, _MOST_MEDIANS = 100, 1.05, 1.5
# A search that takes so long for a suggestion is slow: it is asked before a worker is free.
_SLOW_S = 0.05
# If the first suggestion takes longer, people see what the workers wait for.
_LONG_S = 1.0
LEAST_PACE_S = 0.001
"""How long a search takes is not noted if it is less."""


def fill(state: State) -> list[Effect]:
    """Make trials of added configs, launch waiting trials on free resources, then ask for new
    ones, or for fresh runs of the best once the search is over."""
    effects: list[Effect] = []
    if state.configs and not (state.asking_config or state.ending or state.finished):
        state.asking_config = True
        effects.append(Suggest(index=_next_index(state), config=state.configs[0].config))
    while not state.ending and _has_place(state):
        if queue := state.placement.queue:
            launch = _launch(state, next(iter(queue)))
            if launch is None:
                effects += release_idle(state)
                break
            queue.popitem(last=False)
            effects.append(launch)
        elif _wants_suggestion(state):
            state.asking = True
            known = state.ahead[0] if state.ahead else None
            effects.append(Suggest(index=_next_index(state), known=known))
        elif state.confirming and (again := _fresh_run(state)) is not None:
            state.asking_config = True
            effects.append(Suggest(index=_next_index(state), again=again))
        else:
            break
    if state.suggestion_s >= _SLOW_S and _looks_ahead(state):
        state.asking_ahead = True
        effects.append(Suggest(index=_next_index(state)))
    return effects


def _next_index(state: State) -> int:
    return len(state.trials) + len(state.ahead)


def _looks_ahead(state: State) -> bool:
    """True if a slow search should make another trial before a worker is free for it.

    A trial that is suggested earlier knows fewer results, so the algorithm says how many, as a
    share of those that run: it already knows nothing of these.
    """
    if state.asking or state.asking_ahead or state.ending or state.finished:
        return False
    if is_over(state) or (state.ahead and state.ahead[-1].is_last):
        return False
    return len(state.ahead) < int(state.look_ahead * len(state.placement.holds))


def lacking(state: State) -> int:
    """How many more trials could run now if the search had suggested them; 0 while it does not
    work on one."""
    has_ended = state.ending or state.finished
    if not state.asking or state.search_waits or state.ahead or state.placement.queue or has_ended:
        return 0
    placement, resources = state.placement, state.spec.resources
    most = MANY if state.spec.max_concurrent is None else state.spec.max_concurrent
    most -= len(placement.holds)
    left = state.spec.num_samples - len(state.trials)
    if left > 0:  # not for an endless search, nor for a grid, which has more trials than samples
        most = min(most, left)
    if resources is None:
        return 1
    amounts = resources.required_resources
    if not placement.cluster:
        return len(placement.idle) + placement.capacity.room(amounts, most)
    several = list(placement.cluster.capacities.values())
    return max(1, min(most, sum(capacity.room(amounts, most) for capacity in several)))


def search_text(state: State, now: float) -> str:
    """What the workers wait for that a slow search leaves without a trial; "" if none does."""
    is_first = not state.trials and now - state.now > _LONG_S
    is_slow = state.suggestion_s >= _SLOW_S or is_first
    count = lacking(state) if is_slow else 0
    if not count:
        return ""
    name = state.spec.options.get("search") or "the search"
    waits = "1 worker waits" if count == 1 else f"{count} workers wait"
    if not state.suggestion_s:
        return f"{waits} for the first suggestion of {name}"
    taken_s = state.suggestion_s
    taken = f"{taken_s:.2g}" if taken_s < 10 else f"{taken_s:.0f}"
    return f"{waits} for the search: {name} takes {taken} s per suggestion"


def outlook_text(state: State) -> str:
    """A line for the user about the search's `Outlook`; "" if it has none, or is over."""
    expected, metric = state.outlook, state.spec.metric
    if expected is None or state.is_complete or state.finished:
        return ""
    little = ": so little that you may stop" * expected.is_little
    return (
        f"the search expects {metric}={expected.best:.4g} of the best config so far, and a gain "
        f"of {expected.gain:.2g} from the next trial{little}"
    )


def impossible(state: State, waiting: Iterable[Trial]) -> str:
    """An error message if one of the trials needs more than the machine has, or more than nodes
    can have that may join; "" otherwise."""
    known: set[PlacementGroupFactory] = set()
    for trial in waiting:
        resources = trial.spec.resources
        if resources in known:
            continue
        known.add(resources)
        if text := _impossible(state.placement, resources):
            return f"trial {trial.trial_id} requests {text}: it can never start"
    return ""


def _impossible(placement: Placement, resources: PlacementGroupFactory) -> str:
    if not placement.cluster:
        amounts, capacity = resources.least_resources, placement.capacity
        if capacity.ever_fits(amounts):
            return ""
        return f"{amounts}, but this machine has {comparable(capacity.total, amounts)}"
    least = resources.first(resources.least_bundles)
    if may_fit(placement.cluster, least):
        return ""
    return f"{_request_text(least)}, but the cluster offers {offer_text(placement.cluster, least)}"


def _request_text(resources: PlacementGroupFactory) -> str:
    bundles = [bundle for bundle in resources.bundles if any(bundle.values())]
    if len(bundles) < 2:
        return f"{resources.required_resources}"
    first, *others = bundles
    alike = all(bundle == first for bundle in others)
    several = f"{len(bundles)} bundles of {first}" if alike else f"the bundles {bundles}"
    return f"{several} ({resources.strategy})"


def _has_place(state: State) -> bool:
    most = state.spec.max_concurrent
    return most is None or len(state.placement.holds) < most


def fits_no_trial(state: State) -> bool:
    """True if a further trial would not end within the time budget, if it takes a little longer
    than each of the newest trials: those that were stopped early count as if they had gone on. It
    is not expected to take much longer than most, or a slow one would leave most of the time
    unused."""
    budget_s = state.spec.budget_s
    if not state.spec.fits_budget or budget_s is None:
        return False
    newest = [
        trial
        for trial in islice(reversed(state.trials.values()), _NEWEST)
        if trial.status is Status.TERMINATED
    ]
    longest = max((one.iteration for one in newest if not _is_early(one)), default=0)
    took_s = sorted(_whole_s(one, longest) for one in newest) or [0.0]
    expected_s = min(took_s[-1], _MOST_MEDIANS * took_s[len(took_s) // 2])
    left_s = budget_s - state.active_s - _MARGIN * expected_s
    if state.spec.confirm and not state.confirming:
        # Leave time for the fresh runs. The first trials may be slow, so at most half of all.
        rounds = math.ceil(CANDIDATES * state.spec.confirm / _workers(state))
        left_s -= min(rounds * _MARGIN * expected_s, budget_s / 2)
    return left_s < 0


def _workers(state: State) -> int:
    """The number of fresh runs that can run at once; on a cluster, whose nodes are not asked here,
    that of the running trials and one more."""
    placement, resources = state.placement, state.spec.resources
    most = MANY if state.spec.max_concurrent is None else state.spec.max_concurrent
    running = len(placement.holds)
    if placement.cluster or resources is None:
        return min(running + 1, most)
    room = len(placement.idle) + placement.capacity.room(resources.required_resources, MANY)
    return min(running + max(room, 1), most)


def _whole_s(trial: Trial, iterations: int) -> float:
    """The duration of the trial in seconds; for one that was stopped early, the duration that is
    expected for this many iterations. Imports and data may have delayed its first report, so the
    time of its last iteration counts if that is shorter than the mean."""
    past_s = sum(past.ended_at - past.began_at for past in trial.attempts)
    took_s = past_s + trial.ended_at - trial.began_at
    if not _is_early(trial) or not trial.iteration:
        return took_s
    pace_s = min(trial.time_this_iter_s, trial.time_total_s / trial.iteration)
    return took_s + max(iterations - trial.iteration, 0) * pace_s


def is_over(state: State) -> bool:
    """True if the search will suggest no further trial."""
    is_known = state.confirming or state.search_ended or state.is_complete
    return is_known or fits_no_trial(state)


def _is_early(trial: Trial) -> bool:
    return trial.stop is not None and trial.stop.reason.is_early


def _wants_suggestion(state: State) -> bool:
    if state.asking or state.search_ended or len(state.questions) >= _MOST_ASKED:
        return False
    return not (state.confirming or fits_no_trial(state)) and _has_room(state)


def _fresh_run(state: State) -> TrialSpec | None:
    """The next fresh run, if it can start now."""
    if state.asking_config or state.finished or fits_no_trial(state) or not _has_room(state):
        return None
    # A restore may run trials of the search again: which are the best is known when they end.
    if any(not one.status.is_final and not one.spec.confirms for one in state.trials.values()):
        return None
    return next(fresh_runs(state.spec, state.trials), None)


def _has_room(state: State) -> bool:
    """True if a further trial would have room, as far as that is known."""
    placement = state.placement
    if placement.idle or state.spec.resources is None or not placement.holds:
        return True
    resources = state.spec.resources
    return placement.has_room(resources.first(resources.least_bundles))


def _launch(state: State, trial_id: str) -> Launch | None:
    waiting = state.trials[trial_id]
    is_elastic = waiting.spec.resources.is_elastic
    near = state.node_of_checkpoint(waiting) if state.cluster else ""
    for resources in sizes(waiting, state.now):
        given = state.placement.take(trial_id, resources, near)
        if given is not None:
            bundles = len(resources.bundles) if is_elastic else 0
            trial = state.move(Launched(trial_id=trial_id, bundles=bundles))
            return Launch(
                trial_id=trial_id,
                attempt=trial.attempt,
                allocation=given.allocation,
                checkpoint=None if trial.origin else trial.newest_checkpoint,
                reuse=given.reuse,
                origin=trial.origin,
            )
    return None


def release_idle(state: State) -> list[Effect]:
    """End the idle workers, because no trial can use them."""
    return [
        Release(trial_id=trial_id, attempt=state.trials[trial_id].attempt)
        for trial_id in state.placement.recall_idle()
    ]


def sizes(trial: Trial, now: float) -> Iterator[PlacementGroupFactory]:
    """The sizes that the trial could be launched with, the largest first."""
    resources = trial.spec.resources
    for count in range(_most(trial, now), resources.least_bundles - 1, -1):
        yield resources.first(count)


def can_shrink(trial: Trial, failure: Failure) -> bool:
    """True if a lost process is not a failure, because the others can continue without it."""
    return failure.kind in OF_THE_PROCESS and trial.bundles > trial.spec.resources.least_bundles


def can_grow(state: State, trial: Trial) -> bool:
    """True if another bundle is free and no other trial waits for resources."""
    more = trial.next_bundle
    if more is None or not trial.has_room or state.placement.queue:
        return False
    if trial.bundles >= _most(trial, state.now):
        return False
    whole = trial.spec.resources.first(trial.bundles + 1)
    return state.placement.can_add(trial.trial_id, more, whole)


def _most(trial: Trial, now: float) -> int:
    resources = trial.spec.resources
    whole = len(resources.bundles)
    if now >= trial.shrunk_until:
        return whole
    # A restore may have raised the minimum above `shrunk_to`. The trial would then wait for a
    # start that no event triggers.
    return max(min(trial.shrunk_to, whole), resources.least_bundles)
