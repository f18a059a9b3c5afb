"""The steps of nodes, workers, the uploader and the user's code: most rules of the walk."""

from random import Random
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from holdfast.scheduler.effects import Wait
from holdfast.scheduler.events import CheckpointLost, SchedulerAnswered, WaitEnded
from holdfast.testing.rehearsal import failure
from holdfast.trial.errors import FailureKind, ProcessFailureKind
from tests.scheduler.any_order.orders import CAPACITY, KINDS, ORDERS, Order
from tests.scheduler.any_order.shell import Shell, Worker

# The best of them is 3; some are not scores.
SCORES = [0.0, 1.0, 2.0, 3.0, float("nan"), float("-inf"), None, "high"]


class Workers(Shell):
    """What nodes and trials may do next, and what may happen to checkpoints and questions."""

    @precondition(lambda self: self.has_nodes and len(self.open) < 4)
    @rule()
    def node_joins(self) -> None:
        self.joins()

    def joins(self) -> None:
        self.joined += 1
        self.open.add(f"n{self.joined}")
        self.perform(self.run.joins(f"n{self.joined}", CAPACITY))

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def node_announces_its_end(self, data: st.DataObject) -> None:
        node = data.draw(st.sampled_from(sorted(self.open)))
        self.open.discard(node)
        self.leaving.add(node)
        self.perform(self.run.is_leaving(node))

    @precondition(lambda self: self.open or self.leaving)
    @rule(data=st.data())
    def node_is_lost(self, data: st.DataObject) -> None:
        """Its workers are lost with it: their exits follow, each at some time."""
        node = data.draw(st.sampled_from(sorted(self.open | self.leaving)))
        self.open.discard(node)
        self.leaving.discard(node)
        for worker in self.workers.values():
            if any(place.node == node for place in worker.places):
                worker.state, worker.asked, worker.is_lost = "leaving", False, True
        self.perform(self.run.leaves(node))

    def rolled(self, dice: Random) -> list[Order]:
        order = dice.choice(KINDS), dice.randrange(6), dice.randrange(6)
        return [order] if dice.random() < 0.4 else []

    def worker_goes_on(self, worker: Worker, dice: Random) -> None:
        match worker.state:
            case "starting" if worker.origin is not None:
                self.is_given_its_copy(worker)
            case "starting":
                self.starts(worker)
            case "reporting":
                self.is_answered(worker, "continue")
            case "running" if not worker.told:
                self.reports(worker, self.rolled(dice), dice.choice(SCORES), checkpoint=True)
            case "running" if dice.random() < 0.3:
                self.saves(worker)
            case "running":
                self.returns(worker)
            case _:
                self.leaves(worker)

    @precondition(lambda self: self.those("starting"))
    @rule(data=st.data())
    def worker_is_up(self, data: st.DataObject) -> None:
        worker = self.pick(data, "starting")
        if worker.origin is None:
            self.starts(worker)
        else:
            self.is_given_its_copy(worker)

    def is_given_its_copy(self, worker: Worker) -> None:
        """Continue, unless the worker got the order to end meanwhile."""
        assert worker.origin is not None
        if worker.told:
            self.leaves(worker)
            return
        source, index = worker.origin.trial_id, worker.origin.checkpoint.index
        worker.origin, worker.given = None, self.run.trial(worker.trial_id).next_checkpoint
        self.scores[worker.trial_id, worker.given] = self.scores[source, index]
        del self.run.origins[worker.trial_id]
        self.perform(self.run.adopt(worker.trial_id))

    def starts(self, worker: Worker) -> None:
        worker.state = "running"
        self.perform(self.run.start(worker.trial_id))

    @precondition(lambda self: self.those("running"))
    @rule(data=st.data(), orders=ORDERS, checkpoint=st.booleans(), score=st.sampled_from(SCORES))
    def worker_reports(
        self, data: st.DataObject, orders: list[Order], checkpoint: bool, score: Any
    ) -> None:
        self.reports(self.pick(data, "running"), orders, score, checkpoint=checkpoint)

    def reports(
        self, worker: Worker, orders: list[Order], score: Any, *, checkpoint: bool
    ) -> None:
        worker.state = "reporting"
        metrics: dict[str, Any] = {"orders": [list(order) for order in orders]}
        metrics |= {} if score is None else {"score": score}
        if checkpoint:
            self.note_score(worker.trial_id, metrics)
        self.perform(
            self.run.report(
                worker.trial_id,
                metrics,
                checkpoint=checkpoint,
                has_room=checkpoint,
                attempt=worker.attempt,
            )
        )

    def note_score(self, trial_id: str, row: dict[str, Any]) -> None:
        """The record of the next checkpoint."""
        index = self.run.trial(trial_id).next_checkpoint
        self.scores[trial_id, index] = row.get("score")

    @precondition(lambda self: any(one.told or one.saves for one in self.those("running")))
    @rule(data=st.data())
    def worker_saves(self, data: st.DataObject) -> None:
        told = [worker for worker in self.those("running") if worker.told or worker.saves]
        self.saves(data.draw(st.sampled_from(told)))

    def saves(self, worker: Worker) -> None:
        worker.saves = False
        self.note_score(worker.trial_id, dict(self.run.trial(worker.trial_id).row or {}))
        self.perform(self.run.save(worker.trial_id, attempt=worker.attempt))

    @precondition(lambda self: self.those("running", "reporting"))
    @rule(data=st.data())
    def function_returns(self, data: st.DataObject) -> None:
        worker = self.pick(data, "running", "reporting")
        if worker.state == "running" or worker.told:
            self.returns(worker)

    def returns(self, worker: Worker) -> None:
        worker.state = "idle" if self.run.machine.spec.reuse_actors else "leaving"
        worker.asked = False
        self.perform(self.run.returns(worker.trial_id, attempt=worker.attempt))

    @precondition(lambda self: self.those("starting", "running"))
    @rule(data=st.data(), kind=st.sampled_from(["user", "user", "preempted"]))
    def function_raises(self, data: st.DataObject, kind: FailureKind) -> None:
        worker = self.pick(data, "starting", "running")
        worker.state = "leaving"
        self.perform(self.run.fails(worker.trial_id, kind=kind, attempt=worker.attempt))

    @precondition(lambda self: self.waits)
    @rule(data=st.data())
    def wait_ends(self, data: st.DataObject) -> None:
        self.waited(self.waits.pop(data.draw(st.integers(0, len(self.waits) - 1))))

    def waited(self, wait: Wait) -> None:
        ended = WaitEnded(trial_id=wait.trial_id, attempt=wait.attempt)
        self.perform(self.run.handle(ended))

    @precondition(lambda self: self.those("starting"))
    @rule(data=st.data())
    def fetch_of_the_checkpoint_fails(self, data: st.DataObject) -> None:
        worker = self.pick(data, "starting")
        newest = self.run.trial(worker.trial_id).newest_checkpoint
        if worker.origin is None and newest:
            self.loses(worker.trial_id, newest.index)
        elif worker.origin is not None and not self.run.machine.ending:
            del self.run.origins[worker.trial_id]  # otherwise it is retried after a restore
        if worker.origin is not None or newest:
            worker.state = "leaving"
            self.perform(
                self.run.fails(worker.trial_id, kind="checkpoint", attempt=worker.attempt)
            )

    @precondition(lambda self: self.workers)
    @rule(data=st.data(), kind=st.sampled_from(["lost", "memory", "hang"]))
    def worker_exits(self, data: st.DataObject, kind: ProcessFailureKind) -> None:
        self.leaves(data.draw(st.sampled_from(list(self.workers.values()))), kind)

    def leaves(self, worker: Worker, kind: ProcessFailureKind = "lost") -> None:
        del self.workers[worker.trial_id]
        self.perform(self.run.exits(worker.trial_id, kind=kind, attempt=worker.attempt))

    @precondition(lambda self: any(worker.asked for worker in self.those("reporting")))
    @rule(data=st.data(), what=st.sampled_from(["continue", "continue", "stop", "all", "error"]))
    def stopper_answers(self, data: st.DataObject, what: str) -> None:
        waiting = [worker for worker in self.those("reporting") if worker.asked]
        self.is_answered(data.draw(st.sampled_from(waiting)), what)

    def is_answered(self, worker: Worker, what: str) -> None:
        if not worker.asked:
            return  # it has the order to end, and gets nothing else
        worker.asked = False
        failed = failure("stopper") if what == "error" else None
        self.perform(
            self.run.answer(
                worker.trial_id, stop=what == "stop", stop_all=what == "all", failed=failed
            )
        )

    @precondition(lambda self: self.uncommitted)
    @rule(data=st.data())
    def some_checkpoint_is_committed(self, data: st.DataObject) -> None:
        self.uploader_commits(data.draw(st.integers(0, len(self.uncommitted) - 1)))

    def uploader_commits(self, at: int) -> None:
        self.perform(self.run.commit(*self.uncommitted.pop(at)))

    @precondition(lambda self: self.uncommitted)
    @rule(data=st.data())
    def uploader_finds_it_gone(self, data: st.DataObject) -> None:
        at = data.draw(st.integers(0, len(self.uncommitted) - 1))
        trial_id, index = self.uncommitted.pop(at)
        worker = self.workers.get(trial_id)
        if worker is None or worker.given != index:
            self.loses(trial_id, index)
        else:  # the download for it finds out
            self.uncommitted.append((trial_id, index))

    def loses(self, trial_id: str, index: int, *, after_s: float = 1.0) -> None:
        self.lost.add((trial_id, index))
        in_run = after_s > 0
        gone = CheckpointLost(trial_id=trial_id, index=index, reason="gone", in_run=in_run)
        self.perform(self.run.handle(gone, after_s=after_s))

    @precondition(lambda self: self.asked)
    @rule(data=st.data(), orders=ORDERS)
    def user_answers_the_scheduler(self, data: st.DataObject, orders: list[Order]) -> None:
        at = data.draw(st.integers(0, len(self.asked) - 1))
        self.user_answers(self.asked.pop(at), orders)

    def user_answers(self, trial_id: str, orders: list[Order]) -> None:
        answer = {"orders": [list(order) for order in orders]}
        self.perform(self.run.handle(SchedulerAnswered(trial_id=trial_id, answer=answer)))
