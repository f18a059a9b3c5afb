"""Free resources go to waiting trials first, then to new ones; counts the nodes that they could
use.

An elastic trial can run with fewer bundles than it asks for. It starts with as many as are free,
continues with one fewer when one is lost, and takes more at a checkpoint when more are free. A
lost bundle counts as gone for a while, because nothing reports that it is back; but if a node was
lost with it, or another one joins, it is known what there is.

`demand` places the trials that wait, and those that the search may still suggest, in thought:
first on what is free, then on further nodes of the offer, as long as it has some.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from holdfast.dataclass import dataclass
from holdfast.scheduler.capacity import Capacity
from holdfast.scheduler.confirming import CANDIDATES, fresh_runs
from holdfast.scheduler.effects import Effect, Launch, Release, Suggest
from holdfast.scheduler.nodes.cluster import (
    MANY,
    Cluster,
    arrange,
    may_differ,
    may_fit,
    offer_text,
    resources_of,
)
from holdfast.scheduler.placement import Placement, WaitsFor
from holdfast.scheduler.state import State
from holdfast.trial.errors import OF_THE_PROCESS, Failure
from holdfast.trial.events import Launched
from holdfast.trial.resources import NodeKind, PlacementGroupFactory, comparable
from holdfast.trial.trial import Status, Trial, TrialSpec

# The trials of several bundles that one count places; the others wait for the next count.
_MOST_GANGS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """`wanted`: by kind, how many nodes the experiment could use, with those that it uses, and at
    most what the offer has. `here`: the nodes that are there to stay; `idle`: those of them that
    hold nothing, and that nothing waits for."""

    wanted: Mapping[str, int]
    idle: tuple[str, ...]
    here: tuple[str, ...] = ()


def demand(state: State, total: int | None) -> Demand:
    """What the experiment could use now. Looks at every node: do not call it for every event.

    `total` is the number of trials that the search makes if nothing ends it, also those of a
    grid, which the machine does not know; None if it has no end.
    """
    thought = _Thought(state.cluster)
    left = math.inf if state.spec.max_concurrent is None else state.spec.max_concurrent
    left -= len(state.placement.holds)
    if not (state.ending or state.finished):
        for request in _growing(state):
            thought.place(request)
        for request in _waiting(state):
            if left > 0:
                thought.place_whole_or_least(request)
            left -= 1
        resources = state.spec.resources
        if resources is not None and (count := min(left, _unsuggested(state, total))) > 0:
            thought.place_several(resources, count)
    return thought.result()


def _growing(state: State) -> Iterator[PlacementGroupFactory]:
    """The bundles that running elastic trials lack."""
    for trial_id in state.placement.holds:
        trial = state.trials[trial_id]
        if trial.bundles and trial.status.has_worker:
            for bundle in trial.spec.resources.bundles[trial.bundles :]:
                yield PlacementGroupFactory([bundle])


def _waiting(state: State) -> Iterator[PlacementGroupFactory]:
    placement = state.placement
    for trial_id in (
        *placement.queue,
        *placement.waiting_for(WaitsFor.RETRY, WaitsFor.CHECKPOINT),
    ):
        yield state.trials[trial_id].spec.resources


def _unsuggested(state: State, total: int | None) -> float:
    """How many trials the search may still suggest; infinity if it has no end."""
    if state.confirming:
        return len(list(fresh_runs(state.spec, state.trials)))
    if _is_over(state) or state.search_waits:
        return 0
    if total is None:
        return math.inf
    return max(total - state.made_by_search, 0)


class _Thought:
    """The cluster as it would be with more trials and more nodes."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster.open_part()
        self._held = Counter(self._cluster.held)
        self._there = Counter(node.kind for node in self._cluster.nodes.values())
        self._asked: Counter[str] = Counter()
        self._more: Counter[str] = Counter()
        self._present = tuple(self._cluster.nodes)

    def result(self) -> Demand:
        used = {name for name in self._cluster.nodes if self._held[name]}
        wanted = Counter(self._cluster.nodes[name].kind for name in used) + self._more
        return Demand(
            wanted={kind.name: wanted[kind.name] for kind in self._cluster.offer},
            idle=tuple(name for name in self._present if name not in used),
            here=self._present,
        )

    def place_whole_or_least(self, request: PlacementGroupFactory) -> None:
        """Place all bundles, or those that the trial needs at least."""
        if not self.place(request) and request.is_elastic:
            self.place(request.first(request.least_bundles))

    def place(self, request: PlacementGroupFactory) -> bool:
        """Place the bundles, on more nodes if necessary and possible."""
        added: list[str] = []
        while (places := arrange(self._cluster, request)) is None:
            kind = self._kind_for(request) if len(added) < len(request.bundles) else None
            if kind is None:
                for name in added:
                    self._remove(name)
                return False
            if not (name := self._add(kind, request)):
                return True
            added.append(name)
        self._held.update(place.node for place in places)
        return True

    def place_several(self, request: PlacementGroupFactory, most: float) -> None:
        """Place so many equal trials. Those of one bundle are counted and not placed one by one:
        there may be thousands. For an endless search on a cluster without a limit, place one."""
        if most == math.inf and any(kind.most is None for kind in self._cluster.offer):
            most = 1
        several = [bundle for bundle in request.bundles if any(bundle.values())]
        if len(several) == 1:
            self._count(several[0], int(min(most, MANY)))
            return
        for _ in range(int(min(most, _MOST_GANGS))):
            if not self.place(request):
                break

    def _count(self, bundle: Mapping[str, float], count: int) -> None:
        for group in list(self._cluster.groups(bundle)):
            for _, name in group:
                room = self._cluster.capacities[name].room(bundle, count)
                self._held[name] += room
                count -= room
        single = PlacementGroupFactory([bundle])
        while count > 0 and (kind := self._kind_for(single)) is not None:
            room = max(self._room_on(kind, bundle, count), 1)
            nodes = min(-(-count // room), self._left_of(kind))
            self._asked[kind.name] += nodes
            self._more[kind.name] += nodes
            count -= nodes * room

    def _room_on(self, kind: NodeKind, bundle: Mapping[str, float], most: int) -> int:
        """How many such bundles fit on a node of the kind; 1 if that is not known."""
        several = resources_of(self._cluster, kind)
        room = max((Capacity(each).room(bundle, most) for each in several), default=1)
        return room or int(may_differ(self._cluster, kind))

    def _kind_for(self, request: PlacementGroupFactory) -> NodeKind | None:
        """The first kind of which another node could come and has room for the largest bundle."""
        largest = _largest(request)
        for kind in self._cluster.offer:
            if self._left_of(kind) > 0 and self._room_on(kind, largest, 1):
                return kind
        return None

    def _left_of(self, kind: NodeKind) -> int:
        """How many more nodes of the kind could come."""
        count = self._there[kind.name] + self._asked[kind.name]
        return MANY if kind.most is None else kind.most - count

    def _add(self, kind: NodeKind, request: PlacementGroupFactory) -> str:
        """Add a node in thought; "" if it is not known what it would have. Such a node is thought
        to have room for one trial."""
        self._asked[kind.name] += 1
        several = list(resources_of(self._cluster, kind))
        largest = _largest(request)
        is_small = not any(Capacity(each).room(largest, 1) for each in several)
        if not several or (is_small and may_differ(self._cluster, kind)):
            self._more[kind.name] += 1
            return ""
        name = f"another-{sum(self._asked.values())}"
        self._cluster.join(name, several[0], kind=kind.name, hostname="", address="")
        return name

    def _remove(self, name: str) -> None:
        self._asked[self._cluster.nodes[name].kind] -= 1
        self._cluster.lose(name)


def _largest(request: PlacementGroupFactory) -> Mapping[str, float]:
    return max(request.bundles, key=lambda one: (one.get("GPU", 0), one.get("CPU", 0)))


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
    if _is_over(state) or (state.ahead and state.ahead[-1].is_last):
        return False
    return len(state.ahead) < int(state.look_ahead * len(state.placement.holds))


def lacking(state: State) -> int:
    """How many more trials could run now if the search had suggested them; 0 while it does not
    work on one."""
    is_over = state.ending or state.finished
    if not state.asking or state.search_waits or state.ahead or state.placement.queue or is_over:
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
    rounds = 1
    if state.spec.confirm and not state.confirming:  # leave time for the fresh runs
        rounds += math.ceil(CANDIDATES * state.spec.confirm / _workers(state))
    newest = [
        trial
        for trial in islice(reversed(state.trials.values()), _NEWEST)
        if trial.status is Status.TERMINATED
    ]
    longest = max((one.iteration for one in newest if not _is_early(one)), default=0)
    took_s = sorted(_whole_s(one, longest) for one in newest) or [0.0]
    expected_s = min(took_s[-1], _MOST_MEDIANS * took_s[len(took_s) // 2])
    return state.active_s + rounds * _MARGIN * expected_s > budget_s


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


def _is_over(state: State) -> bool:
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
