"""The state of each checkpoint that concerns an uploader: a table, events in, effects out.

A checkpoint is unknown until its commit is ordered, and again once nothing is to be done about it.

| state       | event          | next                  | effects                                 |
|-------------|----------------|-----------------------|-----------------------------------------|
| any other   | `Ordered`      | `Uploading`           | sends the orders                        |
| any other   | its refusal    | `Settled`             | `Over`                                  |
| `Uploading` | its answer     | `Settled`             | answers the waiting reports, `Over`     |
| `Uploading` | `UploaderLost` | `Settled`             | the same                                |
| `Uploading` | the last share | `Uploading`           | orders the owner to complete it         |
| `Uploading` | `NODE_LEFT`    | `Uploading`           | orders the owner to look for it         |
| `Uploading` | `SUPERSEDED`   | `Unwanted`            | answers the waiting reports             |
| any other   | `Removable`    | `Leaving`             | orders the nodes that have a copy       |
| `Leaving`   | the last node  | unknown, or `Removed` | orders the owner to remove it           |
| `Removed`   | `ENDING`       | `Removed`             | orders that once more                   |
| any         | `REPLACED`     | the same              | repeats the orders without an answer    |

A pair that is not in the table changes nothing: nodes run the user's code, whose answers may say
anything, and an uploader that was replaced may answer twice. `advance` is the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from enum import Enum, auto
from typing import Literal

from holdfast.dataclass import dataclass
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

# While this many checkpoints are being uploaded, report() returns only when another one is.
BACKLOG = 64

# A trial's id, and the number of its checkpoint.
Key = tuple[str, int]
# Called with why the checkpoint is not in storage; "" if it is.
Reply = Callable[[str], None]

# -- states ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Uploading:
    """Uploaders owe an answer about it: by node, "" for the owner's, the order that each has.

    `since` is when it was ordered (seconds since 1970), `whole` the order to commit all of it.
    `shares` are the answers of nodes that have uploaded their part, `replies` those who wait.
    """

    since: float
    record: CheckpointRecord
    whole: Commit
    orders: Mapping[str, OfCheckpoint]
    shares: tuple[Shared, ...] = ()
    replies: tuple[Reply, ...] = ()


@dataclass(frozen=True, slots=True)
class Settled:
    """No uploader owes an answer. `why` it is not in storage, "" if it is."""

    why: str = ""


@dataclass(frozen=True, slots=True)
class Unwanted:
    """It was superseded during its upload, and the journal on the disk may still name it."""


@dataclass(frozen=True, slots=True)
class Leaving:
    """These nodes are removing it. The owner's turn comes after the last one: a node whose upload
    is under way would put it into storage again."""

    order: Discard
    nodes: frozenset[str]


@dataclass(frozen=True, slots=True)
class Removed:
    """It is removed, but a node that was cut off during its upload may put it into storage again
    until it notices: so it is removed once more at the end."""

    order: Discard


State = Uploading | Settled | Unwanted | Leaving | Removed


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A checkpoint. `copies` are the nodes where it lies, each with whether it is whole there.
    `is_cut_off`: a node was lost that may have been uploading it."""

    state: State = Settled()
    copies: Mapping[str, bool] = field(default_factory=dict)
    is_cut_off: bool = False


_UNKNOWN = Known()

# -- events ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ordered:
    """Its commit is ordered, or with a `refusal` impossible, for this reason."""

    upload: Uploading
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class Awaited:
    """Somebody waits until its upload is over."""

    reply: Reply


@dataclass(frozen=True, slots=True)
class Removable:
    """The journal on the disk no longer names it: remove it everywhere."""

    order: Discard


@dataclass(frozen=True, slots=True)
class UploaderLost:
    """The uploader of a node has failed for good, and the node is still there."""

    why: str


class Moment(Enum):
    """The events without any facts but a node's name."""

    SUPERSEDED = auto()  # it is not wanted any more
    COPIED = auto()  # the whole of it lies on the node
    RELEASED = auto()  # the node removes it with all else of its trial
    REPLACED = auto()  # another process has replaced the uploader
    NODE_LEFT = auto()  # the node is gone, with all that was on it
    ENDING = auto()  # the owner's uploader is about to get its last order


Event = (
    Ordered
    | Awaited
    | Removable
    | UploaderLost
    | Moment
    | Committed
    | NotCommitted
    | Shared
    | Discarded
)

# -- effects -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Send:
    """Send an order to the uploader of a node, "" for the owner's."""

    node: str
    order: Order


@dataclass(frozen=True, slots=True)
class Respond:
    """Answer one who waits."""

    reply: Reply
    problem: str = ""


How = Literal["committed", "uncommitted", "lost"]


@dataclass(frozen=True, slots=True)
class Over:
    """The upload of a checkpoint has ended like this, if not `committed` for the reason `why`."""

    whole: Commit
    how: How
    why: str = ""


Effect = Send | Respond | Over
Step = tuple[Known, list[Effect]]


# -- the table ---------------------------------------------------------------------------------


def advance(known: Known, event: Event, node: str = "") -> Step:
    """Return the checkpoint after an event, and the effects. `node` is the one that the event
    concerns, or whose uploader has answered; "" is the owner."""
    match event, known.state:
        case Moment.COPIED, _:
            return replace(known, copies={**known.copies, node: True}), []
        case Ordered() | Removable(), Uploading():
            return known, []
        case Ordered(upload, ""), _:
            return _begun(known, upload)
        case Ordered(upload, refusal), _:
            return _over(known, upload, "uncommitted", refusal)
        case Removable(order), _:
            return _removed(known, order)
        case Awaited(reply), Uploading() as state:
            return replace(known, state=replace(state, replies=(*state.replies, reply))), []
        case Awaited(reply), state:
            return known, [Respond(reply, state.why if isinstance(state, Settled) else "")]
        case Moment.SUPERSEDED, Uploading() as state:
            return replace(known, state=Unwanted()), _responses(state)
        case _, Uploading(orders=orders) as state if node in orders:
            return _answered(known, state, event, node)
        case Moment.REPLACED, Leaving(order, nodes) if node in nodes:
            return known, [Send(node, order)]
        case Discarded() | UploaderLost(), Leaving(order, nodes) if node in nodes:
            return _left(known, order, nodes - {node})
        case Moment.NODE_LEFT, Leaving(order, nodes) if node in nodes:
            return _left(replace(known, is_cut_off=True), order, nodes - {node})
        case Moment.NODE_LEFT, Unwanted() if node in known.copies:
            return replace(_without(known, node), is_cut_off=True), []
        case Moment.ENDING, Removed(order):
            return known, [Send("", order)]
        case Moment.RELEASED | Moment.NODE_LEFT, _:
            return _without(known, node), []
        case _:
            return known, []


def _begun(known: Known, upload: Uploading) -> Step:
    orders = upload.orders
    copies = {node: not isinstance(order, UploadShare) for node, order in orders.items() if node}
    known = replace(known, state=upload, copies={**known.copies, **copies}, is_cut_off=False)
    return known, [Send(node, order) for node, order in orders.items()]


def _answered(known: Known, state: Uploading, event: Event, node: str) -> Step:
    """Return the same for a node whose uploader owes an answer."""
    on_node, orders = f"on node {node}: " if node else "", state.orders
    match event, orders[node]:
        case Committed(), Commit() | LookFor() | Complete():
            return _over(known, state, "committed")
        case NotCommitted(name=how, why=why), _:
            return _over(known, state, how, f"{on_node}{why}")
        case UploaderLost(why), _:
            return _over(known, state, "uncommitted", f"{on_node}{why}")
        case Shared() as share, UploadShare():
            left = {other: order for other, order in orders.items() if other != node}
            state = replace(state, orders=left, shares=(*state.shares, share))
            return _ordered(known, state, None if left else _completing(state))
        case Moment.NODE_LEFT, _:  # storage may have what it was about to commit
            known = replace(_without(known, node), is_cut_off=True)
            return _ordered(known, state, LookFor(whole=state.whole))
        case Moment.REPLACED, order:
            return known, [Send(node, order)]
        case _:
            return known, []


def _ordered(known: Known, state: Uploading, order: Complete | LookFor | None) -> Step:
    """Let the owner perform this, if that is known yet."""
    if order is None:
        return replace(known, state=state), []
    return replace(known, state=replace(state, orders={"": order})), [Send("", order)]


def _over(known: Known, upload: Uploading, how: How, why: str = "") -> Step:
    # Nobody waits for one that is here: a restore orders it again.
    here = "the checkpoint is on this machine and not in storage: "
    problem = f"{here}{why}" if how == "uncommitted" else why
    effects = [*_responses(upload, problem), Over(upload.whole, how, why)]
    return replace(known, state=Settled(problem)), effects


def _responses(upload: Uploading, problem: str = "") -> list[Effect]:
    return [Respond(reply, problem) for reply in upload.replies]


def _removed(known: Known, order: Discard) -> Step:
    sends: list[Effect] = [Send(node, order) for node in known.copies]
    nodes = frozenset(known.copies)
    if isinstance(known.state, Leaving):
        nodes |= known.state.nodes
    known, more = _left(replace(known, copies={}), order, nodes)
    return known, [*sends, *more]


def _left(known: Known, order: Discard, nodes: frozenset[str]) -> Step:
    """Wait for these nodes, and then let the owner remove it."""
    if nodes:
        return replace(known, state=Leaving(order, nodes)), []
    state = Removed(order) if known.is_cut_off else Settled()
    return replace(known, state=state), [Send("", order)]


def _without(known: Known, node: str) -> Known:
    return replace(known, copies={name: w for name, w in known.copies.items() if name != node})


def _completing(upload: Uploading) -> Complete:
    """The order to complete a checkpoint of which all shares are in storage."""
    files = {name: fact for share in upload.shares for name, fact in share.files.items()}
    above = {name.rpartition("/")[0] for name in files}
    folders = dict.fromkeys(name for share in upload.shares for name in share.empty_folders)
    empty = [name for name in folders if name not in above]
    return Complete(whole=upload.whole, files=files, empty_folders=empty)


class CheckpointTable:
    """All known checkpoints, and the reports that wait for the uploads of others."""

    def __init__(self) -> None:
        self._known: dict[Key, Known] = {}
        self._held: list[tuple[int, Reply]] = []
        # Asked for at each report: counting takes too long.
        self.count_uploading = 0

    def __getitem__(self, key: Key) -> Known:
        """The checkpoint; one of which nothing is known is settled."""
        return self._known.get(key, _UNKNOWN)

    def __contains__(self, key: Key) -> bool:
        return key in self._known

    @property
    def has_backlog(self) -> bool:
        return self.count_uploading >= BACKLOG

    def uploads(self) -> list[Uploading]:
        """Those whose upload is not over; another thread may call this."""
        everything = list(self._known.values())
        return [one.state for one in everything if isinstance(one.state, Uploading)]

    def handle(self, key: Key, event: Event, node: str = "") -> list[Effect]:
        """Handle an event of one checkpoint; `node` as of `advance`."""
        before = self[key]
        after, effects = advance(before, event, node)
        self.count_uploading += _is_uploading(after) - _is_uploading(before)
        if after == _UNKNOWN:
            self._known.pop(key, None)
        elif after is not before:
            self._known[key] = after
        return effects + self._released()

    def handle_all(self, event: Event, node: str = "", *, of_trial: str = "") -> list[Effect]:
        """Handle an event of all checkpoints, or of those of a trial."""
        keys = [key for key in self._known if of_trial in ("", key[0])]
        return [effect for key in keys for effect in self.handle(key, event, node)]

    def hold(self, reply: Reply, *, below: int = BACKLOG) -> list[Effect]:
        """Answer one who waits for no checkpoint of its own, once fewer than `below` uploads are
        under way."""
        self._held.append((below, reply))
        return self._released()

    def release(self) -> list[Effect]:
        """Answer all that `hold` holds."""
        held, self._held = self._held, []
        return [Respond(reply) for _, reply in held]

    def _released(self) -> list[Effect]:
        if not self._held:
            return []
        ready = [reply for below, reply in self._held if self.count_uploading < below]
        self._held = [one for one in self._held if self.count_uploading >= one[0]]
        return [Respond(reply) for reply in ready]


def _is_uploading(known: Known) -> bool:
    return isinstance(known.state, Uploading)
