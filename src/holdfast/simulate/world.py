"""The shell of a simulation: a virtual clock, and the answers of a real shell to every effect."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, assert_never

from holdfast.dataclass import dataclass
from holdfast.experiment.control.replay import others_moved
from holdfast.experiment.control.stopper_thread import StopFunction
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
from holdfast.scheduler.events import Begun, Event, SchedulerAnswered, WaitEnded
from holdfast.scheduler.machine import Machine
from holdfast.scheduler.stopping import budget_spent
from holdfast.scheduler.verdict import Verdict
from holdfast.simulate.advice import Proposes, Search, ask_stopper
from holdfast.simulate.agenda import Agenda
from holdfast.simulate.cluster import Cluster
from holdfast.simulate.faults import Faults, Luck
from holdfast.simulate.pool import SimulatedPool
from holdfast.simulate.tally import Tally
from holdfast.simulate.trace import Trace
from holdfast.simulate.worker import Training
from holdfast.trial.errors import TuneError
from holdfast.trial.events import Committed, Reported
from holdfast.trial.trial import Trial

# The clock of a simulation starts at this time: seconds since 1970, in September 2001.
BEGAN_AT = 1_000_000_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The surroundings of the machine: the source of trials, their training, the `places`.

    `config_of` returns the config that the curve gets. A checkpoint is committed `commit_s`
    seconds after its report.
    """

    begun: Begun
    proposer: Proposes
    training: Training
    config_of: Callable[[Trial], dict[str, Any]]
    places: int
    faults: Faults
    stopper: StopFunction | None = None
    commit_s: float = 0.0


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
        spec = scene.begun.spec
        luck = Luck(spec.seed)
        cluster = Cluster(scene.places, scene.faults, luck)
        self._pool = SimulatedPool(
            self, scene.training, cluster, scene.faults, luck, reuses=spec.reuse_actors
        )

    def run(self) -> Finish:
        """Simulate from the first event to the last effect.

        Raises CurveFailed, and the exceptions of the user's search and scheduler.
        """
        self.post(self._scene.begun)
        self._pool.expect_losses()
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
        machine, now = self.machine, self.clock()
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
                done = Committed(trial_id=effect.trial_id, index=effect.checkpoint.index)
                self._later(self._scene.commit_s, done)
            case Discard():
                self._pool.discard(effect)
            case Launch():
                self._pool.launch(effect)
            case Suggest():
                self._search.ask(effect.index)
            case AskStopper():
                assert self._scene.stopper is not None
                trial = self.trials[effect.trial_id]
                self.post(ask_stopper(self._scene.stopper, effect, trial))
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
        return "; ".join(t.story() for t in self.trials.values() if not t.status.is_final)[:1000]

    # -- the interface to the worker pool ---------------------------------------------------------

    @property
    def trials(self) -> Mapping[str, Trial]:
        return self.machine.trials

    def post(self, event: Event) -> None:
        """Add an event that happens now."""
        self._inbox.append(event)

    def clock(self) -> float:
        return BEGAN_AT + self.agenda.elapsed_s

    def config_of(self, trial: Trial) -> dict[str, Any]:
        """A trial's config as the user's code gets it."""
        return self._scene.config_of(trial)

    def count_fault(self, kind: str) -> None:
        self._tally.faults[kind] += 1

    def add_busy(self, seconds: float) -> None:
        self._tally.busy_s += seconds
