"""Sends each order to the keeper that has the files: the owner's, at the controller, or a node's.

If a node is lost, its waiting orders go to the owner, which looks for the checkpoints in storage.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable, Mapping, Sequence

from holdfast.experiment.uploads.node_keepers import NodeKeepers
from holdfast.experiment.uploads.questions import GONE, StorageQuestions
from holdfast.experiment.uploads.waiting import Share, WaitingCheckpoint, WaitingCheckpoints
from holdfast.names import folder_name, inner_path, plain_name, printable, shown
from holdfast.runtime.wire import Message
from holdfast.syncer.files.tree import MANIFEST_NAME
from holdfast.text import errors
from holdfast.trial.trial import CheckpointRecord, TrialSpec

_MOST_BYTES = 1 << 63
_MOST_SECONDS = 1e12
_LONGEST_TICKET = 1 << 12
_LONGEST_TEXT = 1 << 12
_MOST_LINES = 100_000
_CHECKSUM = re.compile(r"[0-9a-f]{64}")


class KeeperRoutes:
    """`to_owner` sends a message to the owner; `heard` is called with an answer that concerns the
    owner of the routes, as if the owner of the storage had sent it."""

    def __init__(
        self,
        nodes: NodeKeepers,
        waiting: WaitingCheckpoints,
        *,
        to_owner: Callable[[Message], None],
        heard: Callable[[Message], None],
    ) -> None:
        self._nodes = nodes
        self._waiting = waiting
        self._to_owner = to_owner
        self._heard = heard
        self.questions = StorageQuestions(self.send, nodes.__contains__)
        # Checkpoints that nodes are removing, by trial and folder, with these nodes.
        self._leaving: dict[tuple[str, str], set[str]] = {}
        # Folders of checkpoints that lost nodes were uploading: a node may be cut off, and upload
        # until it has noticed. By folder, the trials of those that were removed meanwhile.
        self._cut_off: set[str] = set()
        self._removed: dict[str, str] = {}
        # By trial, the shares of the checkpoint with this number, which is about to be committed.
        self._shares: dict[str, tuple[int, Mapping[str, list[str]]]] = {}

    def send(self, node: str, message: Message) -> None:
        """Send a message to the keeper of a node, "" for the owner."""
        if node:
            self._nodes.send(node, message)
        else:
            self._to_owner(message)

    def commit(self, spec: TrialSpec, record: CheckpointRecord, *, since: float) -> None:
        """Order a commit, and wait for it. `since` is the time (seconds since 1970)."""
        key, folder = (spec.trial_id, record.index), f"{spec.dirname}/{record.dirname}"
        index, shares = self._shares.pop(spec.trial_id, (0, {}))
        shares = shares if index == record.index else {}
        reached = [record.iteration, record.time_total_s]
        look: Message = ["look", *key, folder, *reached]
        orders: dict[str, Message]
        if any(node not in self._nodes for node in shares or [record.node] if node):
            # It is of an earlier run, or the node was lost meanwhile.
            orders = {"": look}
        elif shares:
            orders = {n: ["share", *key, folder, left_out] for n, left_out in shares.items()}
        else:
            how = "seal" if record.stays_here else "commit"
            orders = {record.node: [how, *key, folder, *reached]}
        item = WaitingCheckpoint(
            since=since,
            files=record.files,
            size_bytes=record.size_bytes,
            folder=folder,
            orders=orders,
            look=look,
            last=["complete", *key, folder, *reached] if shares else [],
        )
        self._waiting.add(key, item)
        self._cut_off.discard(folder)
        if problem := next(filter(None, map(self._nodes.refusal, orders)), ""):
            # Later, because the report is not waiting for it yet.
            loop = asyncio.get_running_loop()
            loop.call_soon(self._heard, ["uncommitted", *key, problem])
            return
        for node, order in orders.items():
            self._nodes.note_copy(node, folder, is_whole=not shares)
            self.send(node, order)

    def note_shares(self, trial_id: str, index: int, left_out: Mapping[str, list[str]]) -> None:
        """Each of these nodes has a share of a checkpoint that is about to be reported;
        `left_out` are files that another node has, too, and uploads."""
        self._shares[trial_id] = (index, left_out)

    def repeat(self, node: str = "") -> None:
        """Repeat the waiting orders for a keeper that replaces one that died."""
        for item in self._waiting.at(node):
            self.send(node, item.orders[node])
        self.questions.ask_again(node)
        if (trials := self._nodes.trials_on(node)) is not None:
            trials.repeat()
        for (trial_id, folder), nodes in self._leaving.items():
            if node in nodes:
                self.send(node, ["discard", trial_id, [folder]])

    # -- removals -----------------------------------------------------------------------------

    def discard(self, trial_id: str, folders: Sequence[str]) -> None:
        """Remove checkpoints, first from the nodes where they lie.

        The owner's turn comes when these have answered: a node whose upload is under way would put
        the checkpoint into storage again.
        """
        for folder in folders:
            if holders := self._nodes.discard(trial_id, folder):
                self._leaving[trial_id, folder] = set(holders)
            if folder in self._cut_off:
                self._removed[folder] = trial_id
        owners = [folder for folder in folders if (trial_id, folder) not in self._leaving]
        if owners:
            self._to_owner(["discard", trial_id, owners])

    def discard_again(self) -> None:
        """At the end: remove what nodes that were cut off have uploaded since it was removed."""
        for folder, trial_id in self._removed.items():
            if folder in self._cut_off:
                self._to_owner(["discard", trial_id, [folder]])

    def _discarded(self, node: str, trial_id: str, folder: str) -> None:
        nodes = self._leaving.get((trial_id, folder), set())
        if node in nodes:
            nodes.discard(node)
            if not nodes:
                del self._leaving[trial_id, folder]
                self._to_owner(["discard", trial_id, [folder]])

    def _discarded_all(self, node: str) -> None:
        """The node removes nothing any more."""
        for trial_id, folder in list(self._leaving):
            self._discarded(node, trial_id, folder)

    # -- nodes --------------------------------------------------------------------------------

    def node_joined(self, node: str) -> None:
        """A node is there, and its keeper was sent its settings."""
        self._nodes.join(node)

    def node_leaving(self, node: str) -> None:
        """A node goes soon: let it send its trials' files. Its checkpoints are under way."""
        self._nodes.mirror(None, artifacts=True, only=node)

    def node_left(self, node: str) -> None:
        """A node is gone: storage may have what its keeper was about to commit."""
        self._nodes.leave(node)
        self.questions.fail(node, GONE)
        for item in self._waiting.move_to_owner(node):
            self._cut_off.add(item.folder)
            self._to_owner(item.look)
        self._discarded_all(node)

    def on_kept(self, node: str, message: Message) -> None:
        """Handle an answer of a node's keeper. Raises ValueError if no keeper sends it."""
        match checked(message):
            case [("committed" | "uncommitted" | "lost"), trial_id, index, *_] as answer:
                item = self._waiting.get((trial_id, index))
                is_all = item is not None and item.orders.keys() == {node} and not item.last
                if is_all or (item is not None and node in item.orders and len(answer) > 3):
                    self._heard(_from(node, answer) if len(answer) > 3 else answer)
            case ["shared", trial_id, index, files, empty_folders]:
                item = self._waiting.get((trial_id, index))
                if item is not None and node in item.orders and item.last:
                    share = Share(files=files, empty_folders=empty_folders)
                    order = self._waiting.shared((trial_id, index), node, share)
                    if order is not None:
                        self._to_owner(order)
            case ["fetched" | "found" | "unanswered" as name, ticket, answer]:
                self.questions.answer(name, ticket, answer, node)
            case ["copied" as name, ticket, files, size]:
                self.questions.answer(name, ticket, (files, size), node)
            case ["discarded", trial_id, folders]:
                for folder in folders:
                    self._discarded(node, trial_id, folder)
            case ["sent_ended", folder]:
                if (trials := self._nodes.trials_on(node)) is not None:
                    trials.sent(folder)
            case ["seen", *token]:
                self._nodes.witness(node, token, self.questions)
            case ["blind", text]:
                self._nodes.decide(node, text)
            case ["gone", text]:
                self._lose_keeper(node, text)
            case ["replaced"]:
                self.repeat(node)
                self._nodes.close_again(node)
            case ["refused", _]:
                # Only the owner can say that another run owns the storage.
                self._to_owner(["check"])
            case ["closed", lines]:
                self._nodes.closed(node, lines)
            case ["kept", place]:
                self._nodes.kept(node, place)
            case ["moving"] as answer:
                self._heard(answer)
            case ["progress" | "left", *_]:
                pass  # of one node; and its folder is removed at the end
            case answer:
                self._heard(_from(node, answer))

    def _lose_keeper(self, node: str, text: str) -> None:
        """The keeper of a node has failed for good, and the node is still there."""
        self._nodes.decide(node, text)
        self.questions.fail(node, text)
        self._nodes.closed(node, [text])
        for item in self._waiting.at(node):
            _, trial_id, index, *_ = item.orders[node]
            self._heard(["uncommitted", trial_id, index, f"on node {node}: {text}"])
        self._discarded_all(node)


def _from(node: str, answer: Message) -> Message:
    """The answer, whose text says where it comes from."""
    return [*answer[:-1], f"on node {node}: {answer[-1]}"]


def checked(message: Message) -> Message:
    """The same answer, with text that can be printed. Raises ValueError if it is not one of a
    node's keeper.

    A node runs the user's code, which can write anything to the agent's connection. So each answer
    is checked by type, range and name before anything relies on it.
    """
    match message:
        case ["moving" | "replaced"]:
            return message
        case ["committed", trial, index]:
            return ["committed", _trial(trial), _number(index)]
        case ["uncommitted" | "lost" as name, trial, index, why]:
            return [name, _trial(trial), _number(index), _text(why)]
        case ["shared", trial, index, dict(files), list(folders)]:
            facts = {_file(name): _fact(fact) for name, fact in files.items()}
            return ["shared", _trial(trial), _number(index), facts, [*map(inner_path, folders)]]
        case ["discarded", trial, list(folders)]:
            return ["discarded", _trial(trial), [_checkpoint(folder) for folder in folders]]
        case ["sent_ended", folder]:
            return ["sent_ended", folder_name(folder)]
        case ["fetched" | "unanswered" as name, ticket, why]:
            return [name, _ticket(ticket), _text(why)]
        case ["found", ticket, list(rows)]:
            return ["found", _ticket(ticket), [_found(row) for row in rows]]
        case ["copied", ticket, files, size]:
            return ["copied", _ticket(ticket), _number(files), _number(size)]
        case ["seen", key, content]:
            return ["seen", inner_path(key, "the token"), _ticket(content)]
        case ["blind" | "gone" | "refused" | "trouble" | "warning" as name, why]:
            return [name, _text(why)]
        case ["kept", str(place)] if place.startswith("/"):
            return ["kept", printable(errors.shortened(place, _LONGEST_TEXT))]
        case ["failed" | "stuck" as name, what, why]:
            return [name, _text(what), _text(why)]
        case ["left" | "closed" as name, list(lines)] if len(lines) <= _MOST_LINES:
            return [name, [_text(line) for line in lines]]
        case ["progress", *numbers] if len(numbers) == 4:
            return ["progress", *(_number(value) for value in numbers)]
        case _:
            raise ValueError(f"not an answer of a node's keeper: {shown(message)}")


def _found(row: object) -> Message:
    match row:
        case [name, iteration, float() | int() as seconds, files, size]:
            if not math.isfinite(seconds) or not 0 <= seconds <= _MOST_SECONDS:
                raise ValueError(f"the training time is {shown(seconds)}")
            numbers = (_number(iteration), float(seconds), _number(files), _number(size))
            return [plain_name(name, "the checkpoint"), *numbers]
        case _:
            raise ValueError(f"not a checkpoint: {shown(row)}")


def _file(name: object) -> str:
    """A file's name in a checkpoint. Raises ValueError."""
    path = inner_path(name, "the file")
    if path == MANIFEST_NAME:
        raise ValueError(f"{path} is holdfast's own file")
    return path


def _fact(value: object) -> list[object]:
    match value:
        case [size, str(checksum)] if _CHECKSUM.fullmatch(checksum):
            return [_number(size), checksum]
        case _:
            raise ValueError(f"not a file's size and checksum: {shown(value)}")


def _trial(value: object) -> str:
    return plain_name(value, "the trial")


def _checkpoint(value: object) -> str:
    """A checkpoint's folder in a trial's. Raises ValueError."""
    path = inner_path(value, "the checkpoint")
    above, _, name = path.partition("/")
    return f"{folder_name(above)}/{plain_name(name)}"


def _number(value: object) -> int:
    if type(value) is not int or not 0 <= value < _MOST_BYTES:
        raise ValueError(f"a number from 0 on was expected, not {shown(value)}")
    return value


def _ticket(value: object) -> str:
    if type(value) is not str or len(value) > _LONGEST_TICKET:
        raise ValueError(f"a ticket must be short text, not {shown(value)}")
    return value


def _text(value: object) -> str:
    if type(value) is not str:
        raise ValueError(f"a reason must be text, not {shown(value)}")
    return printable(errors.shortened(value, _LONGEST_TEXT), keep="\n")
