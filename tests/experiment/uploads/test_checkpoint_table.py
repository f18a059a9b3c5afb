"""The states of checkpoints: single steps, and any order of answers, losses and replacements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from holdfast.experiment.uploads.checkpoint_table import (
    Awaited,
    CheckpointTable,
    Effect,
    Event,
    Key,
    Known,
    Leaving,
    Moment,
    Ordered,
    Over,
    Removable,
    Removed,
    Respond,
    Send,
    Settled,
    Unwanted,
    UploaderLost,
    Uploading,
    advance,
)
from holdfast.syncer.checkpoint.manifest import FileFact
from holdfast.syncer.uploader.messages import (
    Commit,
    Committed,
    Complete,
    Discard,
    Discarded,
    LookFor,
    NotCommitted,
    OfCheckpoint,
    Order,
    Shared,
    UploadShare,
)
from holdfast.trial.trial import CheckpointRecord

RECORD = CheckpointRecord(index=0, iteration=1, attempt=1, files=1, size_bytes=1)
REMOVAL = Discard(trial="t0", folders=["trial/checkpoint_000000"])
KEPT, LOST = (
    Committed(trial="t0", index=0),
    NotCommitted(name="lost", trial="t0", index=0, why="?"),
)
GONE = Discarded(trial="t0", folders=["trial/checkpoint_000000"])


def whole_of(key: Key) -> Commit:
    trial, index = key
    folder = f"trial/checkpoint_{index:06}"
    return Commit(trial=trial, index=index, folder=folder, iteration=1, time_total_s=0.5)


def upload(key: Key, *nodes: str) -> Uploading:
    """An upload from this node, or of the shares of several."""
    whole = whole_of(key)
    orders: dict[str, OfCheckpoint] = {nodes[0]: whole}
    if len(nodes) > 1:
        orders = {node: UploadShare(whole=whole, left_out=[]) for node in nodes}
    return Uploading(since=0.0, record=RECORD, whole=whole, orders=orders)


def share(key: Key, node: str) -> Shared:
    files = {f"of-{node}": FileFact(size=1, checksum="0" * 64)}
    return Shared(trial=key[0], index=key[1], files=files, empty_folders=[])


WHOLE = whole_of(("t0", 0))
HERE, ON_A = Known(state=upload(("t0", 0), "")), Known(state=upload(("t0", 0), "a"))
LEAVING = Known(state=Leaving(REMOVAL, frozenset("ab")))


@pytest.mark.parametrize(
    ("known", "event", "node", "state", "effects"),
    [
        (Known(), Ordered(upload(("t0", 0), "")), "", HERE.state, [Send("", WHOLE)]),
        (HERE, Ordered(upload(("t0", 0), "")), "", HERE.state, []),
        (HERE, KEPT, "", Settled(), [Over(WHOLE, "committed")]),
        (HERE, LOST, "", Settled("?"), [Over(WHOLE, "lost", "?")]),
        (ON_A, KEPT, "", ON_A.state, []),
        (ON_A, LOST, "b", ON_A.state, []),
        (ON_A, LOST, "a", Settled("on node a: ?"), [Over(WHOLE, "lost", "on node a: ?")]),
        (ON_A, share(("t0", 0), "a"), "a", ON_A.state, []),
        (ON_A, Moment.REPLACED, "a", ON_A.state, [Send("a", WHOLE)]),
        (ON_A, Moment.REPLACED, "b", ON_A.state, []),
        (HERE, Moment.SUPERSEDED, "", Unwanted(), []),
        (Known(state=Unwanted()), KEPT, "", Unwanted(), []),
        (HERE, Removable(REMOVAL), "", HERE.state, []),
        (ON_A, Removable(REMOVAL), "", ON_A.state, []),
        (Known(), KEPT, "", Settled(), []),
        (Known(), Removable(REMOVAL), "", Settled(), [Send("", REMOVAL)]),
        (LEAVING, GONE, "a", Leaving(REMOVAL, frozenset("b")), []),
        (LEAVING, GONE, "c", LEAVING.state, []),
        (LEAVING, KEPT, "a", LEAVING.state, []),
        (LEAVING, Moment.REPLACED, "b", LEAVING.state, [Send("b", REMOVAL)]),
        (Known(state=Removed(REMOVAL)), Moment.ENDING, "", Removed(REMOVAL), [Send("", REMOVAL)]),
    ],
)
def test_a_step(
    known: Known, event: Event, node: str, state: object, effects: list[Effect]
) -> None:
    after, done = advance(known, event, node)
    assert (after.state, done) == (state, effects)


def problems(known: Known, event: Event, node: str = "") -> list[str]:
    """What one who waits is told after the event."""
    told: list[str] = []
    waiting, before = advance(known, Awaited(told.append))
    _, effects = advance(waiting, event, node)
    for effect in [*before, *effects]:
        if isinstance(effect, Respond):
            effect.reply(effect.problem)
    return told


@pytest.mark.parametrize(
    ("known", "event", "problem"),
    [
        (HERE, KEPT, ""),
        (HERE, LOST, "?"),
        (HERE, replace(LOST, name="uncommitted"), "on this machine and not in storage: ?"),
        (HERE, Moment.SUPERSEDED, ""),
        # The upload was over before the report came to wait for it.
        (Known(), KEPT, ""),
        (Known(state=Settled("it was lost")), KEPT, "it was lost"),
        (LEAVING, GONE, ""),
    ],
)
def test_who_waits_is_told_once_how_it_ended(known: Known, event: Event, problem: str) -> None:
    [told] = problems(known, event)
    assert told.endswith(problem)
    assert bool(told) is bool(problem)


def test_a_checkpoint_that_cannot_be_stored_is_refused_and_may_be_ordered_again() -> None:
    known, effects = advance(Known(), Ordered(upload(("t0", 0), "a"), "a sees no storage"))
    assert effects == [Over(WHOLE, "uncommitted", "a sees no storage")]
    assert problems(known, KEPT)[0].endswith("not in storage: a sees no storage")
    known, effects = advance(known, Ordered(upload(("t0", 0), "")))
    assert effects == [Send("", WHOLE)]


def test_what_a_cut_off_node_may_still_upload_is_removed_once_more_at_the_end() -> None:
    known, effects = advance(ON_A, Moment.NODE_LEFT, "a")
    assert effects == [Send("", LookFor(whole=WHOLE))]
    known, _ = advance(known, LOST)
    known, effects = advance(known, Removable(REMOVAL))
    assert (known.state, effects) == (Removed(REMOVAL), [Send("", REMOVAL)])


def test_the_same_holds_for_one_that_was_superseded_before_its_node_was_lost() -> None:
    known, _ = advance(ON_A, Moment.SUPERSEDED)
    known = replace(known, copies={"a": True})
    for removed in (advance(known, Moment.NODE_LEFT, "a"), advance(known, Removable(REMOVAL))):
        known, _ = advance(removed[0], Moment.NODE_LEFT, "a")
        known, _ = advance(known, Removable(REMOVAL))
        assert known.state == Removed(REMOVAL)


NODES = ("a", "b")
KEYS = (("t0", 0), ("t0", 1))
pick = st.integers(0, 1 << 16)


class AnyOrder(RuleBasedStateMachine):
    """Uploaders that perform their orders in any order, die, and are lost with their nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.table = CheckpointTable()
        self.nodes = set(NODES)
        # What each uploader has to do; that of a node that is cut off goes on without an answer.
        self.orders: dict[str, list[Order]] = {"": [], "a": [], "b": []}
        self.storage: set[Key] = set()
        self.ordered: set[Key] = set()
        self.superseded: set[Key] = set()
        self.removable: set[Key] = set()
        self.told: dict[int, list[str]] = {}
        self.ended: list[tuple[str, Key]] = []

    # -- the shell ------------------------------------------------------------------------------

    def perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send(node, Discard() as order):
                    self.check_removal(node, order)
                    self.orders[node].append(order)
                case Send(node, order):
                    assert node in self.nodes | {""}
                    self.orders[node].append(order)
                case Respond(reply, problem):
                    reply(problem)
                case Over(whole, how):
                    self.ended.append((how, (whole.trial, whole.index)))

    def check_removal(self, node: str, order: Discard) -> None:
        """Only what is not wanted is removed, in storage only when no node that is there has it
        or is about to upload it."""
        [key] = [key for key in KEYS if whole_of(key).folder == order.folders[0]]
        assert key in self.removable
        assert node in self.nodes | {""}
        if not node:
            assert not any(about(key, one) for name in self.nodes for one in self.orders[name])

    def handle(self, key: Key, event: Event, node: str = "") -> None:
        self.perform(self.table.handle(key, event, node))

    # -- what happens ---------------------------------------------------------------------------

    @rule(key=st.sampled_from(KEYS), where=st.sampled_from([("",), ("a",), ("b",), NODES]))
    def order(self, key: Key, where: tuple[str, ...]) -> None:
        if key not in self.ordered and self.nodes.issuperset(filter(None, where)):
            self.ordered.add(key)
            self.handle(key, Ordered(upload(key, *where)))

    @rule(key=st.sampled_from(KEYS))
    def wait(self, key: Key) -> None:
        told: list[str] = []
        self.told[len(self.told)] = told
        self.handle(key, Awaited(told.append))

    @rule(key=st.sampled_from(KEYS))
    def supersede(self, key: Key) -> None:
        if key in self.ordered:
            self.superseded.add(key)
            self.handle(key, Moment.SUPERSEDED)

    @rule(key=st.sampled_from(KEYS))
    def make_durable(self, key: Key) -> None:
        if key in self.superseded - self.removable:
            self.removable.add(key)
            self.remove(key)

    def remove(self, key: Key) -> None:
        self.handle(key, Removable(Discard(trial=key[0], folders=[whole_of(key).folder])))

    @rule(key=st.sampled_from(KEYS), node=st.sampled_from(NODES))
    def copy(self, key: Key, node: str) -> None:
        if key in self.storage - self.superseded and node in self.nodes:
            self.handle(key, Moment.COPIED, node)

    @precondition(lambda self: any(self.orders.values()))
    @rule(at=pick, fails=st.booleans(), dies=st.booleans())
    def answer(self, at: int, fails: bool, dies: bool) -> None:
        busy = sorted(name for name, orders in self.orders.items() if orders)
        node = busy[at % len(busy)]
        if answer := self.do(node, self.orders[node].pop(0), fails):
            if dies and node in self.nodes | {""}:
                self.replace_uploader(node)  # before the answer could be sent
            elif node in self.nodes | {""}:
                self.handle(key_of(answer), answer, node)

    @rule(node=st.sampled_from(("", *NODES)))
    def replace_uploader(self, node: str) -> None:
        if node in self.nodes | {""}:
            self.orders[node].clear()
            self.perform(self.table.handle_all(Moment.REPLACED, node))
            if not node:  # its removals have no answer: the controller orders them all again
                for key in self.removable:
                    self.remove(key)

    @rule(node=st.sampled_from(NODES))
    def lose_node(self, node: str) -> None:
        if node in self.nodes:
            self.nodes.discard(node)
            self.perform(self.table.handle_all(Moment.NODE_LEFT, node))

    @rule(node=st.sampled_from(NODES))
    def lose_uploader(self, node: str) -> None:
        if node in self.nodes:
            self.orders[node].clear()
            self.perform(self.table.handle_all(UploaderLost("it died"), node))

    def do(self, node: str, order: Order, fails: bool) -> Any:
        match order:
            case Discard():
                [key] = [key for key in KEYS if whole_of(key).folder == order.folders[0]]
                if node:
                    return Discarded(trial=order.trial, folders=order.folders)
                self.storage.discard(key)
                return None
            case Commit() | Complete() | LookFor() | UploadShare():
                whole = order.whole
                key = (whole.trial, whole.index)
                if isinstance(order, Complete):
                    assert order.files.keys() == {"of-a", "of-b"}
                if isinstance(order, UploadShare) and not fails:
                    return share(key, node)
                is_kept = key in self.storage if isinstance(order, LookFor) else not fails
                if is_kept:
                    self.storage.add(key)
                    return Committed(trial=key[0], index=key[1])
                return NotCommitted(name="lost", trial=key[0], index=key[1], why="?")
            case _:
                raise AssertionError(order)

    # -- what always holds ----------------------------------------------------------------------

    @invariant()
    def the_count_is_right(self) -> None:
        assert self.table.count_uploading == len(self.table.uploads())

    @invariant()
    def an_uploader_has_each_order_that_it_owes_an_answer(self) -> None:
        for key in KEYS:
            state = self.table[key].state
            owed = state.orders if isinstance(state, Uploading) else {}
            for node, order in owed.items():
                assert order in self.orders[node]
            if isinstance(state, Leaving):
                assert all(state.order in self.orders[node] for node in state.nodes)

    @invariant()
    def nobody_is_answered_twice_nor_told_of_a_success_that_was_none(self) -> None:
        assert all(len(told) <= 1 for told in self.told.values())
        for how, key in self.ended:
            assert how != "committed" or key in self.storage | self.superseded
        assert len(self.ended) == len({key for _, key in self.ended})

    def teardown(self) -> None:
        """In the end everything is over, and what is not wanted is nowhere."""
        self.answer_all()
        for key in KEYS:
            self.make_durable(key)
        self.answer_all()
        self.perform(self.table.handle_all(Moment.ENDING))
        self.answer_all()
        assert all(len(told) == 1 for told in self.told.values())
        assert self.table.count_uploading == 0
        assert not self.storage & self.superseded
        left = [self.table[key] for key in self.superseded if key in self.table]
        assert all(isinstance(one.state, Removed) and not one.copies for one in left)

    def answer_all(self) -> None:
        while any(self.orders.values()):
            self.answer(at=0, fails=False, dies=False)


def about(key: Key, order: Order) -> bool:
    """True if the order of a node is about this checkpoint."""
    if isinstance(order, Discard):
        return order.folders == [whole_of(key).folder]
    return isinstance(order, (Commit, UploadShare)) and order.whole == whole_of(key)


def key_of(answer: Any) -> Key:
    if isinstance(answer, Discarded):
        [key] = [key for key in KEYS if whole_of(key).folder == answer.folders[0]]
        return key
    return answer.trial, answer.index


AnyOrder.TestCase.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
TestAnyOrder: Callable[..., Any] = AnyOrder.TestCase
