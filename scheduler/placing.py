"""Free resources go to waiting trials first, then to new ones.

An elastic trial can run with fewer bundles than it asks for. It starts with as many as are free,
continues with one fewer when one is lost, and takes more at a checkpoint when more are free. A
lost bundle counts as gone for a while, because nothing reports that it is back; but if a node was
lost with it, or another one joins, it is known what there is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from holdfast.scheduler.effects import Effect, Launch, Release, Suggest
from holdfast.scheduler.nodes.offering import may_fit, offer_text
from holdfast.scheduler.placement import Placement
from holdfast.scheduler.state import State
from holdfast.trial.errors import OF_THE_PROCESS, Failure
from holdfast.trial.events import Launched
from holdfast.trial.resources import PlacementGroupFactory, comparable
from holdfast.trial.trial import Trial

# While so many questions wait for the user's code, no trial is added: one that waits before its
# start holds no resources, so a slow scheduler would get trials without end.
_MOST_ASKED = 16


def fill(state: State) -> list[Effect]:
    """Make trials of added configs, launch waiting trials on free resources, then ask for new
    ones."""
    effects: list[Effect] = []
    if state.configs and not (state.asking_config or state.ending or state.finished):
        state.asking_config = True
        effects.append(Suggest(index=len(state.trials), config=state.configs[0].config))
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
            effects.append(Suggest(index=len(state.trials)))
        else:
            break
    return effects


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


def _wants_suggestion(state: State) -> bool:
    if state.asking or state.search_ended or len(state.questions) >= _MOST_ASKED:
        return False
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
    """Whether a lost process is not a failure, because the others can continue without it."""
    return failure.kind in OF_THE_PROCESS and trial.bundles > trial.spec.resources.least_bundles


def can_grow(state: State, trial: Trial) -> bool:
    """Whether another bundle is free and no other trial waits for resources."""
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
