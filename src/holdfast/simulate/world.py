"""The shell of a simulation: a virtual clock, and the answers of a real shell to every effect."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import assert_never

from holdfast.experiment.control.proposing.proposer import Proposer
from holdfast.experiment.control.replay import Change, others_moved
from holdfast.experiment.control.search_thread import calls_for
from holdfast.experiment.control.stopper_thread import answer_of
from holdfast.scheduler.effects import (
    AskScheduler,
    AskStopper,
    Commit,
    Discard,
    Effect,
    Finish,
    Halt,
    Launch,
    Preempt,
    Release,
    Reply,
    Suggest,
    Wait,
    Warn,
)
from holdfast.scheduler.events import (
    EndOrdered,
    Event,
    SchedulerAnswered,
    SearchEnded,
    SearchWaits,
    WaitEnded,
)
from holdfast.scheduler.machine import Machine
from holdfast.scheduler.stopping import budget_spent
from holdfast.scheduler.verdict import Verdict
from holdfast.simulate.agenda import Agenda
from holdfast.simulate.faults import Faults, Luck
from holdfast.simulate.pool import SimulatedPool
from holdfast.simulate.tally import Tally
from holdfast.simulate.trace import Trace
from holdfast.simulate.worker import Scene
from holdfast.trial.errors import TuneError
from holdfast.trial.events import Reported
from holdfast.trial.trial import Trial

# A node's number, and how often it was lost before.
Which = tuple[int, int]


class World:
    """The machine with simulated workers. `tally` counts events, `trace` records them."""

    def __init__(self, machine: Machine, scene: Scene, trace: Trace, tally: Tally) -> None:
        self.machine = machine
        self.agenda = Agenda()
        self.warnings: list[str] = []
        self.outcome: Finish | None = None
        self._scene = scene
        self._trace = trace
        self._tally = tally
        self._inbox: deque[Event] = deque()
        self._search = Search(scene.proposer, machine, post=self.post, warn=self.warnings.append)
        luck = Luck(scene.begun.spec.seed)
        self._pool = SimulatedPool(machine, scene, self.agenda, tally, luck, self.post)
        self._nodes = NodeLosses(self._pool, scene.faults, self.agenda, tally, luck)

    def run(self) -> Finish:
        """Simulate from the first event to the last effect.

        Raises CurveFailed, and the exceptions of the user's search and scheduler.
        """
        self.post(self._scene.begun)
        self._nodes.begin()
        budget_s = self._scene.begun.spec.budget_s
        if budget_s is not None:
            self.agenda.after(budget_s, self.post, budget_spent(budget_s), awaited=False)
        while True:
            while self._inbox:
                self._turn(self._inbox.popleft())
            if self.outcome is not None:
                return self.outcome
            if not self.agenda.awaited:
                raise TuneError(f"the simulation hangs (a bug in holdfast): {self._story()}")
            self.agenda.advance()

    def _turn(self, event: Event) -> None:
        """Decide, record, pass on, perform: like a turn of the controller."""
        machine, now = self.machine, self.agenda.now
        trial_id = getattr(event, "trial_id", "")
        before = machine.trials.get(trial_id)
        effects = machine.handle(event, now=now)
        after = machine.trials.get(trial_id)
        self._trace.add(event, now, machine.answers)
        if isinstance(event, Reported) and after is before:
            # Its worker has not seen the order to stop, and waits for an answer.
            self._pool.reply(Reply(trial_id=trial_id, attempt=event.attempt, verdict=Verdict.STOP))
        self._tally.saw(event, before, after, self.agenda.elapsed_s)
        self._tell(event, before, after)
        for effect in effects:
            self._perform(effect)

    def _tell(self, event: Event, before: Trial | None, after: Trial | None) -> None:
        """Pass the event to the search, and the other trials that it has changed."""
        if self._search.learns:
            others = others_moved(self.machine, after.trial_id if after else "")
            self._search.saw([(event, before, after), *others])

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Reply():
                self._pool.reply(effect)
            case Commit():
                self._commit(effect)
            case Discard():
                self._pool.discard(effect)
            case Launch():
                self._pool.launch(effect)
            case Suggest():
                self._search.ask(effect.index)
            case AskStopper():
                trial = self.machine.trials[effect.trial_id]
                self.post(answer_of(self._scene.stopper, effect, trial))
            case AskScheduler():
                self.post(self._asked(effect))
            case Wait():
                ended = WaitEnded(trial_id=effect.trial_id, attempt=effect.attempt)
                self._later(effect.seconds, ended)
            case Halt():
                self._pool.halt(effect)
            case Preempt():
                self._pool.preempt(effect)
            case Release():
                self._pool.release(effect)
            case Warn():
                self.warnings.append(effect.text)
            case Finish():
                self.outcome = effect
            case _:
                assert_never(effect)

    def _commit(self, effect: Commit) -> None:
        which = effect.trial_id, effect.checkpoint
        if self._scene.commit_s:
            self.agenda.after(self._scene.commit_s, self._pool.committed, which)
        else:
            self._pool.committed(which)

    def _asked(self, effect: AskScheduler) -> SchedulerAnswered:
        policy, proposer = self.machine.policy, self._scene.proposer
        assert policy is not None
        answer = proposer.with_users_config(effect.question, policy.answer)
        return SchedulerAnswered(trial_id=effect.trial_id, answer=answer)

    def _later(self, seconds: float, event: Event) -> None:
        if seconds:
            self.agenda.after(seconds, self.post, event)
        else:
            self.post(event)

    def _story(self) -> str:
        trials = self.machine.trials.values()
        return "; ".join(t.story() for t in trials if not t.status.is_final)[:1000]

    def post(self, event: Event) -> None:
        """Add an event that happens now."""
        self._inbox.append(event)


class Search:
    """Passes each event on to the search, then asks it again, as the search thread does."""

    def __init__(
        self,
        proposer: Proposer,
        machine: Machine,
        *,
        post: Callable[[Event], None],
        warn: Callable[[str], None],
    ) -> None:
        self._proposer = proposer
        self._machine = machine
        self._post = post
        self._warn = warn
        self._searcher = proposer.searcher
        self._postponed: int | None = None
        if self._searcher is not None:
            proposer.open()

    @property
    def learns(self) -> bool:
        """Whether the search wants to know about events."""
        return self._searcher is not None

    def ask(self, index: int) -> None:
        """Post trial number `index`, or the end of the search. A search that returned None is
        asked again after the next event. Raises the exceptions of the user's code."""
        answer = self._proposer.propose(index)
        machine, placement = self._machine, self._machine.placement
        if answer is not None or self._searcher is None:
            if isinstance(answer, SearchEnded) and self._proposer.ended_because:
                self._warn(self._proposer.ended_because)
            self._post(answer or SearchEnded())
        elif placement.has_trials or machine.paused:
            self._postponed = index
            if machine.paused and not machine.search_waits:
                self._post(SearchWaits())
        else:
            self._post(EndOrdered(reason="abort", message=self._proposer.nothing_to_wait_for))

    def saw(self, changes: Iterable[Change]) -> None:
        """Pass on the effects of an event on trials, then ask again."""
        is_news = False
        for event, before, after in changes:
            for call in calls_for(self._proposer, event, before, after):
                call()
            is_news |= before is not None and before is not after
        if is_news and self._postponed is not None:
            index, self._postponed = self._postponed, None
            self.ask(index)


class NodeLosses:
    """Lets nodes with the workers of `pool` go away, each at random times, and come back."""

    def __init__(
        self, pool: SimulatedPool, faults: Faults, agenda: Agenda, tally: Tally, luck: Luck
    ) -> None:
        self._pool = pool
        self._life_s = faults.node_life_s
        self._absence_s = faults.node_absence_s
        self._agenda = agenda
        self._tally = tally
        self._luck = luck

    def begin(self) -> None:
        """Let nodes be there, and go away from now on."""
        self._pool.places.open()
        for node in range(self._pool.places.nodes):
            self._expect((node, 0))

    def _expect(self, which: Which) -> None:
        if self._life_s is not None:
            seconds = self._luck.wait_s(self._life_s, "node", *which)
            self._agenda.after(seconds, self._announce, which, awaited=False)

    def _announce(self, which: Which) -> None:
        notice_s = self._pool.places.announce(which[0])
        if notice_s:
            self._agenda.after(notice_s, self._lose, which)
        else:
            self._lose(which)

    def _lose(self, which: Which) -> None:
        self._tally.faults["node"] += 1
        self._pool.lose(which[0])
        self._agenda.after(self._absence_s, self._restore, which)

    def _restore(self, which: Which) -> None:
        node, times = which
        self._pool.places.restore(node)
        self._pool.serve_waiting()
        self._expect((node, times + 1))
