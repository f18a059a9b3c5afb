"""Runs a small experiment on several machines, with faults of these, the network, the controller
and the bucket."""

from __future__ import annotations

import itertools
import os
import re
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final

from tests.rig.bench import results
from tests.rig.faults import node_aftermath
from tests.rig.faults.aftermath import Aftermath, Story, has_begun
from tests.rig.faults.ground import Ground, ground, remove_stale
from tests.rig.faults.node_aftermath import ALLOWANCE_S, Dealt, Record
from tests.rig.faults.node_mishaps import (
    LOSES,
    OF_THE_COMMAND,
    OF_THE_CONTROLLER,
    SUSPENSIONS,
    Blow,
    NodeMishap,
    Resume,
    Undone,
    Workload,
)
from tests.rig.faults.node_scene import EPOCHS_OF_POPULATION, Scene, scene_of
from tests.rig.nodes.machines import Machine
from tests.rig.script import LONGEST_S, UserScript

_MARGIN_S, _CAUSE_S = 1.0, 1.0
_BRIEF: Final = 0.4
# A run without a mark for so long hangs.
_SILENCE_S: Final = 120.0
_IN_MEMORY: Final = Path("/dev/shm")
_PREFIX: Final = "holdfast-nodes-"


class NodeStage:
    """Each run has a new folder; all use the same machines, one after the other."""

    def __init__(self, folder: Path, script: Path, made: Ground) -> None:
        self.folder = folder
        self.ground = made
        # By the kind of the blow: in how many seconds nodes were given up.
        self.took: dict[str, list[float]] = {}
        self._script = script
        self._runs = itertools.count(1)
        # Nothing is dealt while something is undone.
        self._turn = threading.Lock()

    def measure(self) -> tuple[int, int]:
        """How many requests and epochs a run without a fault has."""
        mishap = NodeMishap(waves=())
        with self._scene(mishap) as scene:
            script = scene.bench.start().succeeds(_SILENCE_S)
            assert script.left() == []
            epochs = sum(fact["what"] == "ran" for fact in scene.bench.notes())
            return len(scene.proxy.log), epochs

    def play(self, mishap: NodeMishap) -> Story:
        """A run with these faults; if its script was killed, another one that continues it."""
        with self._scene(mishap) as scene:
            after = Aftermath(scene.bench)
            for blow in OF_THE_COMMAND & set(mishap.blows):
                self.ground.prepare(blow)
            scene.arm(mishap.waves[0], lambda: self._deal(scene))
            script = scene.bench.start()
            scene.starting.set_result(script)
            blows = threading.Thread(target=self._deal_waves, args=(scene, script))
            blows.start()
            try:
                self._until_the_end(scene, script, after)
            except BaseException:
                script.kill_all()
                raise
            finally:
                scene.end()
                blows.join()
            with self._turn:
                self.ground.undo(scene.proxy)
            self.ground.cure()
            after.ended(script)
            self._continue(scene, script, after)
            return self._told(scene, after)

    def _scene(self, mishap: NodeMishap) -> AbstractContextManager[Scene]:
        folder = self.folder / f"run-{next(self._runs)}"
        return scene_of(mishap, self.ground, folder, self._script)

    # -- the faults ---------------------------------------------------------------------------

    def _until_the_end(self, scene: Scene, script: UserScript, after: Aftermath) -> None:
        """Read the marks of the run: some are moments."""
        try:
            while (mark := script.wait_for("", _SILENCE_S)) != "script-ended":
                if scene.is_time(mark):
                    self._deal(scene)
        except AssertionError as error:
            after.wrong(str(error))
            script.kill_all()

    def _deal_waves(self, scene: Scene, script: UserScript) -> None:
        """One wave after the other: wait for its moment, and undo everything when it is time."""
        for number, wave in enumerate(scene.mishap.waves):
            if not scene.has_ended.is_set():
                if number:  # the first one was armed before the start
                    scene.arm(wave, lambda: self._deal(scene))
                scene.moment.wait()
                self._hold(scene, script, wave.undone)
                with self._turn:
                    self.ground.undo(scene.proxy)

    def _deal(self, scene: Scene) -> bool:
        """All blows fall now, in this thread: what it serves waits for them."""
        with self._turn:
            if not scene.has_ended.is_set():
                self._strike(scene)
        scene.moment.set()
        return True

    def _strike(self, scene: Scene) -> None:
        script = scene.starting.result(LONGEST_S)
        nodes = self._order(scene, script)
        for node in self.ground.nodes:
            scene.losses[node.name] = len(re.findall(_loss_of(node.name), script.stderr))
        for blow in sorted(scene.wave.blows, key=OF_THE_CONTROLLER.__contains__):
            at = time.time()
            if blow in OF_THE_COMMAND:
                continue
            struck = self.ground.deal(blow, nodes, script, scene.proxy)
            if struck is not None:
                nodes.remove(struck)
                scene.dealt.append(Dealt(blow=blow, node=struck.name, at=at))

    def _order(self, scene: Scene, script: UserScript) -> list[Machine]:
        """The nodes that are hit first."""
        busy = self.ground.busy(script)
        at = scene.wave.node % len(busy)
        others = [node for node in self.ground.nodes if node not in busy]
        return [*busy[at:], *busy[:at], *others]

    def _hold(self, scene: Scene, script: UserScript, undone: Undone) -> None:
        match undone:
            case Undone.SOON:
                scene.has_ended.wait(scene.lease_s * _BRIEF)
            case Undone.AFTER_A_LEASE:
                scene.has_ended.wait(scene.lease_s)
            case Undone.WHEN_LOST:
                # One that had not joined is not lost, either.
                until = time.monotonic() + self._bound_s(scene)
                for name in _to_be_lost(scene, self.ground):
                    left_s = max(0.0, until - time.monotonic())
                    script.says(_loss_of(name), scene.losses[name] + 1, left_s)
            case _:
                pass

    def _bound_s(self, scene: Scene) -> float:
        """After how many seconds a silent node is given up at the latest, on a busy machine."""
        return scene.lease_s + _MARGIN_S + _CAUSE_S + ALLOWANCE_S

    # -- what follows -------------------------------------------------------------------------

    def _continue(self, scene: Scene, script: UserScript, after: Aftermath) -> None:
        """Check the end, or continue the run: after the death of its script, if there was no
        storage when it began, or if a node was lost with files at the very end."""
        mishap = scene.mishap
        nodes = len(self.ground.nodes)
        was_killed = any(one.blow in OF_THE_CONTROLLER for one in scene.dealt)
        has_ended_badly = script.process.returncode != 0
        if has_ended_badly and (was_killed or not has_begun(scene.here)):
            if not was_killed:
                after.checked["a run that cannot begin says so"] += 1
                after.says((scene.way.public,))
            after.checked["a run whose script was killed is continued"] += was_killed
            script, nodes = self._start_again(scene, after, mishap.resume)
        elif has_ended_badly and _lost_at_the_end(scene, script):
            after.checked["a run whose node was lost with files at the end says so"] += 1
            script, nodes = self._start_again(scene, after, Resume.SAME)
        else:
            after.checked["a run outlives the faults of its nodes"] += 1
        if script.process.returncode:
            after.wrong(f"the run ended with {script.process.returncode}")
        else:
            self._finished(scene, script, after)
            self._left_clean(scene, after, nodes)
        is_elsewhere = was_killed and mishap.resume is Resume.ELSEWHERE
        self._holds(scene, after, is_elsewhere=is_elsewhere)

    def _start_again(
        self, scene: Scene, after: Aftermath, resume: Resume
    ) -> tuple[UserScript, int]:
        """Continue the run to its end. Returns the script, and how many nodes it has."""
        bench, nodes = scene.bench, len(self.ground.nodes)
        options: dict[str, Any] = {"go_on": True}
        if scene.mishap.workload is not Workload.POPULATION:
            options["wishes"] = {"resume_errored": True}
        match resume:
            case Resume.AUTO:
                options = {"resume": "auto"}
            case Resume.FEWER:
                nodes = 2
                bench.environ["HOLDFAST_CLUSTER"] = self.ground.cluster(nodes)
            case Resume.ALONE:
                nodes = 0
                del bench.environ["HOLDFAST_CLUSTER"]
            case Resume.ELSEWHERE:
                scene.here = bench.use(scene.way, machine="elsewhere")
            case _:
                pass
        script = bench.start(**options)
        after.ended(script)
        return script, nodes

    def _finished(self, scene: Scene, script: UserScript, after: Aftermath) -> None:
        for found in results(script):
            after.checked["a trial comes to its end, with its checkpoint"] += 1
            if scene.mishap.workload is Workload.POPULATION:
                if (
                    found["error"]
                    or found["metrics"]["training_iteration"] != EPOCHS_OF_POPULATION
                ):
                    after.wrong(f"a trial has not come to its end: {found}")
            else:
                may_lose = scene.mishap.workload is not Workload.IN_SYNC
                after.problems += after.unfinished(found, may_lose=may_lose)

    def _holds(self, scene: Scene, after: Aftermath, *, is_elsewhere: bool) -> None:
        """The records here and in the bucket are complete; `is_elsewhere`: the rows that were
        never published are lost with the controller's machine."""
        notes = scene.bench.notes()
        if scene.mishap.workload is not Workload.IN_SYNC:
            # A checkpoint that was acknowledged and is not in storage is lost with its node.
            kept = [fact for fact in notes if fact["what"] != "ran"]
        else:
            kept = notes
        if is_elsewhere:
            kept = []
        copy = scene.way.download(scene.bench.storage)
        after.holds([copy, scene.here], kept, storage=copy)
        records = node_aftermath.journal(scene.here)
        self._attempts(scene, after, records, notes)
        self._requeued(scene, after, records)

    def _attempts(
        self,
        scene: Scene,
        after: Aftermath,
        records: Sequence[Record],
        notes: Sequence[dict[str, Any]],
    ) -> None:
        started = sum(record.name == "Started" for record in records)
        after.checked["no attempt is heard after the start of a newer one"] += started
        after.problems += node_aftermath.late_rows(records)
        after.problems += node_aftermath.at_the_same_time(notes, scene.dealt)
        if scene.mishap.workload is not Workload.POPULATION:  # a clone begins elsewhere
            after.checked["an attempt begins after the newest checkpoint in storage"] += started
            after.problems += node_aftermath.resumed_early(records)
        again = node_aftermath.used_again(records)
        after.checked["a node that came back is used again"] += again

    def _requeued(self, scene: Scene, after: Aftermath, records: Sequence[Record]) -> None:
        """Nodes are given up within two beats, and their trials are free at once. What only a
        suspended script has lost is charged to none."""
        bound_s = self._bound_s(scene)
        if SUSPENSIONS.issuperset(one.blow for one in scene.dealt):
            after.checked["a suspended script charges no trial"] += len(scene.dealt)
            after.problems += node_aftermath.charged(records)
        # Until then the controller could notice a loss.
        killed = [one.at for one in scene.dealt if one.blow in OF_THE_CONTROLLER]
        ended_at = min([*killed, max((record.at for record in records), default=0.0)])
        for one in scene.dealt:
            if one.blow not in LOSES or not node_aftermath.had_joined(records, one):
                continue
            found = node_aftermath.losses(records, one, before=ended_at)
            if not found:
                if ended_at > one.at + bound_s:
                    after.wrong(f"{one.node} was not given up: {one.blow}")
                continue
            took_s = found[0].at - one.at
            self.took.setdefault(one.blow, []).append(took_s)
            after.checked["a lost node is given up within two beats"] += 1
            if took_s > bound_s:
                after.wrong(f"{one.node} was given up after {took_s:.1f} s only: {one.blow}")
            for trial, waited_s in node_aftermath.orphaned(records, found[0]):
                after.checked["a trial of a lost node is requeued at once"] += 1
                if waited_s is None or waited_s > ALLOWANCE_S:
                    after.wrong(f"{trial} was not requeued: {waited_s}")

    def _left_clean(self, scene: Scene, after: Aftermath, nodes: int) -> None:
        """After a good end, nothing is left on the disks of nodes without a fault."""
        struck = {one.node for one in scene.dealt}
        if any(one.blow is Blow.REBOOT_ALL for one in scene.dealt):
            return
        joined = {
            record.fields["hostname"]
            for record in node_aftermath.journal(scene.here)
            if record.name == "NodeJoined"
        }
        for node in self.ground.nodes[:nodes]:
            if node.name in joined - struck:
                after.checked["nothing is left on the disk of a node"] += 1
                found = self.ground.leftovers(node)
                after.problems += [f"left on {node.name}: {name}" for name in found]

    def _told(self, scene: Scene, after: Aftermath) -> Story:
        injected = Counter(str(one.blow) for one in scene.dealt)
        if self.ground.has_been_ill():
            injected.update(str(blow) for blow in OF_THE_COMMAND & set(scene.mishap.blows))
        fell_on = ", ".join(f"{one.node} at {one.at:.1f}" for one in scene.dealt)
        return after.story(scene.mishap, fell_on or ("ssh" if injected else ""), injected)


def _to_be_lost(scene: Scene, made: Ground) -> Iterator[str]:
    """The hosts that the controller must give up after this wave."""
    for one in scene.dealt[-len(scene.wave.blows) :]:
        if one.blow is Blow.CONTROLLER_UNPLUG:
            yield from (node.name for node in made.nodes)
        elif one.blow in LOSES:
            yield one.node


def _lost_at_the_end(scene: Scene, script: UserScript) -> bool:
    """Whether the run lacks only what nodes of this campaign had not sent when they were lost."""
    told = re.search(r"ended, but this is not in .*:\n((?:  .*\n)+)What is on", script.stderr)
    lost = {one.node for one in scene.dealt if one.blow in LOSES}
    lines = told[1].splitlines() if told else []
    owners = [re.match(r"  node (\w+?)(-\d+)? was lost before it had sent", one) for one in lines]
    return bool(owners) and all(owner and owner[1] in lost for owner in owners)


def _loss_of(host: str) -> str:
    """The pattern of what the script says when it has given up a node of this host."""
    return rf"node {host}(-\d+)? is lost"


@contextmanager
def node_stage(script: Path, nodes: int) -> Iterator[NodeStage]:
    """A stage with so many nodes."""
    remove_stale(_IN_MEMORY, _PREFIX)
    own = f"{_PREFIX}{os.getpid()}-"
    with tempfile.TemporaryDirectory(dir=_IN_MEMORY, prefix=own) as name:
        folder = Path(name)
        with ground(nodes, folder) as made:
            yield NodeStage(folder, script, made)
