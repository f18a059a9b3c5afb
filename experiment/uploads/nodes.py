"""The nodes of a run: whether they see the storage, and which files of trials lie on them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum, auto
from functools import partial
from typing import Any, Protocol

from holdfast.dataclass import dataclass
from holdfast.experiment.callbacks.thread import Level
from holdfast.experiment.uploads.waiting import GONE, StorageQuestions
from holdfast.late import Timer
from holdfast.names import listed
from holdfast.runtime.wire import Message
from holdfast.scheduler.events import Event
from holdfast.schema import to_row
from holdfast.syncer.errors import StorageUnavailable
from holdfast.syncer.uploader.messages import (
    Close,
    Order,
    Release,
    Seen,
    SendEnded,
    SendFiles,
    TakeToken,
)

# A node's uploader is a process that starts, and looks for the storage for half a minute.
SEEN_WITHIN_S = 120.0
# A message names so many trials.
_NAMED = 10
# Nodes start one after the other, and one warning is to name all that do not see the storage.
_TOGETHER_S = 2.0


class UploadsHost(Protocol):
    """The owner of the uploads."""

    def post(self, event: Event) -> None: ...

    def warn(self, text: str, level: Level = "warning") -> None: ...

    def lose(self, trial_id: str, index: int, reason: str) -> None:
        """Called for a checkpoint that is gone before it was committed."""

    def lose_ownership(self, text: str) -> None:
        """Called if another incarnation owns the storage."""


class NodeTransport(Protocol):
    """The connections to the agents of nodes."""

    def order(self, node: str, message: Message) -> None:
        """Send an order to the uploader of a node. One for a node that is gone is ignored."""


class _Files(Enum):
    """The known state of a trial's files, but for its checkpoints."""

    CHANGING = auto()
    ENDED = auto()  # nothing changes them any more, and the uploader was ordered to send them
    RELEASED = auto()  # the same, and the uploader was ordered to remove them after that
    IN_STORAGE = auto()


@dataclass(slots=True, kw_only=True, eq=False)
class _Here:
    """A trial that has run on the node."""

    trial_id: str
    files: _Files = _Files.CHANGING

    @property
    def is_under_way(self) -> bool:
        """True until the uploader has said that storage has the files of the trial, which has
        ended."""
        return self.files in (_Files.ENDED, _Files.RELEASED)


class NodeTrials:
    """The trials that have run on a node, by their folders, and which of their files are not in
    storage yet. Orders the node's uploader to send these.

    It sends them once more when a trial has ended, so that a node that is lost later takes nothing
    with it.
    """

    def __init__(self, send: Callable[[Order], None]) -> None:
        """`send` sends the uploader an order."""
        self._send = send
        self._here: dict[str, _Here] = {}

    def note(self, folder: str, trial_id: str) -> None:
        """The trial in this folder runs here."""
        self._here[folder] = _Here(trial_id=trial_id)

    def handed_over(self, folder: str) -> None:
        """The trial goes to another node, and its files are in storage."""
        if folder in self._here:
            self._here[folder].files = _Files.IN_STORAGE

    def send_files(self, folders: Collection[str] | None, *, artifacts: bool) -> None:
        """Send the changed files of the trials in these folders; None for all."""
        wanted = [
            name
            for name, one in self._here.items()
            if one.files is not _Files.RELEASED and (folders is None or name in folders)
        ]
        if wanted:
            self._send(SendFiles(folders=wanted, artifacts=artifacts))

    def ended(self, folder: str) -> None:
        """The trial in this folder has ended: send its files, with an answer."""
        one = self._here.get(folder)
        if one is not None and one.files is _Files.CHANGING:
            one.files = _Files.ENDED
            self._send(SendEnded(folder=folder))

    def repeat(self) -> None:
        """Repeat the orders without an answer, to an uploader that has replaced one that died."""
        for folder, one in self._here.items():
            if one.is_under_way:
                self._send(SendEnded(folder=folder))
            if one.files is _Files.RELEASED:
                self._send(Release(folder=folder))

    def sent(self, folder: str) -> None:
        """The files of a trial that has ended are in storage."""
        one = self._here.get(folder)
        if one is not None and one.files is _Files.RELEASED:
            del self._here[folder]
        elif one is not None and one.files is _Files.ENDED:
            one.files = _Files.IN_STORAGE

    def release(self, is_over: Callable[[str], bool]) -> list[str]:
        """Let the node remove the trials that are over, by their ids, once their files are in
        storage: the disk of a node is small, and storage has everything. Returns these ids."""
        released = []
        for folder, one in list(self._here.items()):
            if one.files is _Files.RELEASED or not is_over(one.trial_id):
                continue
            released.append(one.trial_id)
            self.ended(folder)
            self._send(Release(folder=folder))
            if one.files is _Files.IN_STORAGE:
                del self._here[folder]
            else:
                one.files = _Files.RELEASED
        return released

    def unsent(self, *, all_have_ended: bool) -> list[str]:
        """The ids of trials that have ended and of which storage may lack files."""
        return [
            one.trial_id
            for one in self._here.values()
            if one.is_under_way or (all_have_ended and one.files is _Files.CHANGING)
        ]


@dataclass(slots=True, kw_only=True, eq=False)
class _Node:
    """A node that is there. `sees` is done once it is known whether it sees the storage: with why
    it does not, or "". `has_closed` is None until it is ordered to close."""

    sees: asyncio.Future[str]
    timer: Timer
    trials: NodeTrials
    has_closed: bool | None = None

    def decide(self, problem: str) -> None:
        self.timer.cancel()
        if not self.sees.done():
            self.sees.set_result(problem)


class UploadNodes:
    """Knows the nodes of a run. Without a transport there are none, and all is the owner's."""

    def __init__(
        self, transport: NodeTransport | None, *, host: UploadsHost, where: str = ""
    ) -> None:
        """`where` names the storage in messages."""
        self._transport = transport
        self._host = host
        self._where = where
        self._loop = asyncio.get_running_loop()
        self._nodes: dict[str, _Node] = {}
        self._told: set[str] = set()
        self._warning: asyncio.TimerHandle | None = None
        self._close_order: Close | None = None
        # Done once no node is closing any more.
        self._all_closed: asyncio.Future[None] = self._loop.create_future()
        # What is not in storage: the node that has it, and a line. "" for a node that is lost.
        self._unsaved: list[tuple[str, str]] = []
        # Where nodes keep it.
        self._kept: dict[str, str] = {}

    def __contains__(self, node: str) -> bool:
        """True if this node is there."""
        return node in self._nodes

    @property
    def has_nodes(self) -> bool:
        """True if trials run on nodes."""
        return self._transport is not None

    def send(self, node: str, order: Order) -> None:
        """Send an order, if the node is there."""
        if self._transport is not None and node in self._nodes:
            self._transport.order(node, to_row(order))

    def repeat(self, node: str) -> None:
        """Repeat the orders about trials' files, and the last one, to an uploader that has
        replaced one that died."""
        if (known := self._nodes.get(node)) is not None:
            known.trials.repeat()
            if known.has_closed is not None and self._close_order is not None:
                self.send(node, self._close_order)

    # -- coming and going -------------------------------------------------------------------------

    def join(self, node: str) -> None:
        """A node is there; its uploader says next whether it sees the storage."""
        timer = Timer(self._loop, SEEN_WITHIN_S, partial(self._on_silence, node))
        trials = NodeTrials(partial(self.send, node))
        self._nodes[node] = _Node(sees=self._loop.create_future(), timer=timer, trials=trials)

    def _on_silence(self, node: str) -> None:
        self.decide(node, f"its uploader did not answer within {SEEN_WITHIN_S:g} s")

    def leave(self, node: str) -> None:
        """A node is gone, and everything that was on it."""
        gone = self._nodes.pop(node, None)
        if gone is None:
            return
        gone.decide(GONE)
        if gone.has_closed is None:
            # A trial that has not ended runs again elsewhere.
            if ended := gone.trials.unsent(all_have_ended=False):
                self._host.warn(_lost_with(node, ended), "loss")
        elif not gone.has_closed:
            if unsent := gone.trials.unsent(all_have_ended=True):
                self._unsaved.append(("", _lost_with(node, unsent)))
            self._note_closed()
        self._warn_of_blind_soon()

    # -- who sees the storage -----------------------------------------------------------------

    def sees_storage(self, node: str) -> bool | None:
        """Whether this node sees the storage; None if that is not known yet."""
        known = self._nodes.get(node)
        if known is None or not known.sees.done():
            return None
        return not known.sees.result()

    async def settled(self, node: str) -> None:
        """Wait until it is known whether the node sees the storage, at most `SEEN_WITHIN_S`."""
        if node in self._nodes:
            await asyncio.shield(self._nodes[node].sees)

    def refusal(self, node: str) -> str:
        """Why a checkpoint cannot be stored from this node; "" if it can."""
        known = self._nodes.get(node)
        if known is None or not known.sees.done() or not (problem := known.sees.result()):
            return ""
        return (
            f"node {node} cannot store checkpoints in {self._where} ({problem}). Use a storage "
            f"that all nodes see: RunConfig(storage_path=...) with cloud storage such as "
            f"s3://bucket/path, or a path on a shared file system"
        )

    def find_token(self, node: str, token: Seen, questions: StorageQuestions) -> None:
        """The node sees the storage if the owner finds its token there."""
        ticket = f"token of {node}: {token.content}"
        order = TakeToken(ticket=ticket, key=token.key, content=token.content)
        questions.ask(order).add_done_callback(partial(self._found_token, node))

    def _found_token(self, node: str, asked: asyncio.Future[Any]) -> None:
        answer = asked.result()
        unanswered = isinstance(answer, StorageUnavailable)
        self.decide(node, answer.cause if unanswered else answer.problem)

    def decide(self, node: str, problem: str) -> None:
        """It is known why the node does not see the storage; "" if it does."""
        if node in self._nodes:
            self._nodes[node].decide(problem)
            self._warn_of_blind_soon()

    def _warn_of_blind_soon(self) -> None:
        if self._warning is None:
            self._warning = self._loop.call_later(_TOGETHER_S, self.warn_of_blind)

    def warn_of_blind(self) -> None:
        """Once all nodes so far are known, warn of those that do not see the storage."""
        self._warning = None
        if any(not known.sees.done() for known in self._nodes.values()):
            return
        blind = {n: why for n, known in self._nodes.items() if (why := known.sees.result())}
        new = sorted(blind.keys() - self._told)
        self._told |= blind.keys()
        if new:
            some = "these nodes do" if len(new) > 1 else "this node does"
            self._host.warn(
                f"{some} not see the storage {self._where}: {_with_reasons(new, blind)}. "
                f"Metrics are kept, but report() with a checkpoint raises there. Use cloud "
                f"storage or a shared file system to keep checkpoints"
            )

    # -- the files of trials ----------------------------------------------------------------------

    def trials_on(self, node: str) -> NodeTrials:
        """The trials that have run on the node; none if it is gone."""
        known = self._nodes.get(node)
        return NodeTrials(lambda order: None) if known is None else known.trials

    def trial_ended(self, folder: str) -> None:
        """The trial in this folder has ended for good."""
        for trials in self._seeing():
            trials.ended(folder)

    def send_files(
        self, folders: Collection[str] | None, *, artifacts: bool, only: str = ""
    ) -> None:
        """Let each node, or `only` this one, upload the files of its trials: of those in these
        folders (None: all)."""
        for trials in self._seeing(only):
            trials.send_files(folders, artifacts=artifacts)

    def _seeing(self, only: str = "") -> list[NodeTrials]:
        """The trials on the nodes that see the storage."""
        names = [only] if only else list(self._nodes)
        return [self._nodes[node].trials for node in names if self.sees_storage(node)]

    # -- the end ------------------------------------------------------------------------------

    def close(self, order: Close) -> asyncio.Future[None]:
        """Let each uploader finish its orders. Done when each has answered, or is gone."""
        self._close_order = order
        self.warn_of_blind()
        for node, known in self._nodes.items():
            if known.has_closed is None:
                known.has_closed = False
                self.send(node, order)
        self._note_closed()
        return self._all_closed

    def _note_closed(self) -> None:
        is_closing = any(known.has_closed is False for known in self._nodes.values())
        if not is_closing and not self._all_closed.done():
            self._all_closed.set_result(None)

    def closed(self, node: str, lines: Iterable[str]) -> None:
        """The uploader of a node has finished; `lines` say what is not in storage."""
        known = self._nodes.get(node)
        if known is not None and known.has_closed is False:
            self._unsaved += [(node, line) for line in lines]
            known.has_closed = True
            self._note_closed()

    def kept(self, node: str, place: str) -> None:
        """The agent has ended, and keeps in this folder what its uploader could not upload."""
        self._kept[node] = place
        if node in self._nodes and self._nodes[node].has_closed is None:
            self._host.warn(
                f"node {node} has ended with files that are not in storage. They are kept there "
                f"in {place}",
                "loss",
            )

    def unsaved(self) -> list[str]:
        """After `close` and the end of the agents: what nodes could not bring to storage, and
        where it is kept."""
        late = [n for n, known in self._nodes.items() if known.has_closed is False]
        told = [(node, f"the uploader of node {node} had not finished in time") for node in late]
        return [self.with_place(node, line) for node, line in [*self._unsaved, *told]]

    def with_place(self, node: str, line: str) -> str:
        """The line, with where the node keeps what the line is about. "" is the controller."""
        if place := self._kept.get(node):
            return f"{line} (kept on node {node} in {place})"
        return f"{line} (it was on node {node}, which has not kept it)" if node else line


def _lost_with(node: str, trials: list[str]) -> str:
    return (
        f"node {node} was lost before it had sent the newest output and artifacts of "
        f"{'trials' if len(trials) > 1 else 'trial'} {listed(trials, _NAMED)}"
    )


def _with_reasons(nodes: Iterable[str], reasons: Mapping[str, str]) -> str:
    """`a, b (why); c (why)`: nodes with the same reason together."""
    named: dict[str, list[str]] = {}
    for node in nodes:
        named.setdefault(reasons[node], []).append(node)
    return "; ".join(f"{', '.join(names)} ({why})" for why, names in named.items())
