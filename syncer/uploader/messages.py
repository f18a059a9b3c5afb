"""The orders to an uploader's process and its answers, as types.

There is one process for the controller's tree, which owns the storage, and one for each node. A
message is a list of the fields of its class (`holdfast.schema`). `trial` is an id, `folder` a path
in the experiment's folder, and a `ticket` identifies the answer to an order. A node runs the
user's code, which can write anything to its connection: so each field has bounds, and `ANSWERS`
refuses everything else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Annotated, Any, Literal, get_args

from holdfast.dataclass import dataclass
from holdfast.names import folder_name, inner_path, plain_name, printable, shown
from holdfast.schema import Between, Checked, Count, Messages, PlainName, Stored
from holdfast.schema import FolderName as TrialFolder
from holdfast.syncer.checkpoint.manifest import FileFact, TrialProgress
from holdfast.syncer.files.tree import MANIFEST_NAME

_CHECKSUM = re.compile(r"[0-9a-f]{64}")
_LONGEST_TEXT = 1 << 12
_MOST_LINES = 100_000


def _ticket(value: object, name: str) -> str:
    if type(value) is not str or len(value) > _LONGEST_TEXT:
        raise ValueError(f"{name} must be short text, not {shown(value)}")
    return value


def _text(value: object, name: str = "a reason") -> str:
    if type(value) is not str:
        raise ValueError(f"{name} must be text, not {shown(value)}")
    short = value if len(value) <= _LONGEST_TEXT else f"{value[:_LONGEST_TEXT]}..."
    return printable(short, keep="\n")


def _lines(value: object) -> list[str]:
    if type(value) is not list or len(value) > _MOST_LINES:
        raise ValueError(f"a list of at most {_MOST_LINES:,} lines was expected")
    return [_text(line) for line in value]


def _checkpoint(value: object, name: str) -> str:
    """A checkpoint's folder in a trial's. Raises ValueError."""
    above, _, below = inner_path(value, name).partition("/")
    return f"{folder_name(above)}/{plain_name(below)}"


def _place(value: object, name: str) -> str:
    if type(value) is not str or not value.startswith("/"):
        raise ValueError(f"{name} must be an absolute path, not {shown(value)}")
    return _text(value)


def _read_facts(value: object) -> dict[str, FileFact]:
    if type(value) is not dict:
        raise ValueError(f"files must be a table, not {shown(value)}")
    return {_file(name): _fact(fact) for name, fact in value.items()}


def _file(name: object) -> str:
    path = inner_path(name, "the file")
    if path == MANIFEST_NAME:
        raise ValueError(f"{path} is holdfast's own file")
    return path


def _fact(value: object) -> FileFact:
    match value:
        case [int(size), str(checksum)] if 0 <= size < 1 << 63 and _CHECKSUM.fullmatch(checksum):
            return FileFact(size=size, checksum=checksum)
        case _:
            raise ValueError(f"not a file's size and checksum: {shown(value)}")


def _write_facts(files: Mapping[str, FileFact]) -> dict[str, Any]:
    return {name: [fact.size, fact.checksum] for name, fact in files.items()}


Bytes = Annotated[int, Between(0, (1 << 63) - 1)]
Seconds = Annotated[float, Between(0, 1e12)]
Ticket = Annotated[str, Checked(_ticket)]
Text = Annotated[str, Checked(_text)]
Lines = Annotated[Sequence[str], Stored(_lines)]
InnerPath = Annotated[str, Checked(inner_path)]
CheckpointFolder = Annotated[str, Checked(_checkpoint)]
Facts = Annotated[Mapping[str, FileFact], Stored(_read_facts, _write_facts)]

# -- orders ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """Begin with these settings (a pickled `UploaderSettings`): the first order. `root` and `node`
    are the tree and the name of a node, "" for the controller's."""

    name: Literal["open"] = "open"
    settings: bytes
    root: str = ""
    node: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """Force a checkpoint to the disk and upload it, unless it only `stays_here`."""

    name: Literal["commit"] = "commit"
    trial: str
    index: Count
    folder: str
    iteration: Count
    time_total_s: Seconds
    stays_here: bool = False

    @property
    def whole(self) -> Commit:
        """The order for all of the checkpoint, as of the orders for a part of its commit."""
        return self

    @property
    def progress(self) -> TrialProgress:
        """How far the trial had come."""
        return TrialProgress(
            trial_id=self.trial, iteration=self.iteration, time_total_s=self.time_total_s
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LookFor:
    """Find out whether storage has the checkpoint of a lost node."""

    name: Literal["look_for"] = "look_for"
    whole: Commit


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadShare:
    """Upload a node's share of a checkpoint, without the files `left_out`, which another node
    uploads."""

    name: Literal["upload_share"] = "upload_share"
    whole: Commit
    left_out: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Complete:
    """Write the manifest of a checkpoint whose shares are all in storage."""

    name: Literal["complete"] = "complete"
    whole: Commit
    files: Facts
    empty_folders: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Discard:
    """Remove superseded checkpoints."""

    name: Literal["discard"] = "discard"
    trial: str
    folders: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetch:
    """Download a checkpoint."""

    name: Literal["fetch"] = "fetch"
    ticket: str
    folder: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Find:
    """Find the trial's checkpoints in a folder of the storage, down to the one named `first`."""

    name: Literal["find"] = "find"
    ticket: str
    trial: str
    folder: str
    first: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Verify a checkpoint on a node."""

    name: Literal["check"] = "check"
    ticket: str
    folder: str
    committed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """Copy a checkpoint on a node, for a clone of its trial."""

    name: Literal["copy"] = "copy"
    ticket: str
    source: str
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Download:
    """Download a trial's output, and with `artifacts` all its other files."""

    name: Literal["download"] = "download"
    ticket: str
    folder: str
    artifacts: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HandOver:
    """Send a trial's files for the last time: another machine does that from now on."""

    name: Literal["hand_over"] = "hand_over"
    ticket: str
    folder: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeToken:
    """Remove the token that a node has written into the storage."""

    name: Literal["take_token"] = "take_token"
    ticket: str
    key: str
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SendFiles:
    """Send the changed files of the trials in these folders (None: all): their artifacts, on a
    node also their output."""

    name: Literal["send_files"] = "send_files"
    folders: Sequence[str] | None
    artifacts: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SendEnded:
    """Send all files of a trial that has ended, with an answer."""

    name: Literal["send_ended"] = "send_ended"
    folder: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Remove the folder of a trial from a node, once storage has all of it."""

    name: Literal["release"] = "release"
    folder: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Publish:
    """Make the journal from segment `begins` up to this position visible in storage."""

    name: Literal["publish"] = "publish"
    segment: Count
    offset: Count
    begins: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteEnded:
    """The trials of these folders have ended, each with the fingerprint that it has then; "" for
    those that run again. `are_written`: their files are written, too."""

    name: Literal["note_ended"] = "note_ended"
    fingerprints: Mapping[str, str]
    are_written: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckClaim:
    """Find out whether another run owns the storage."""

    name: Literal["check_claim"] = "check_claim"


@dataclass(frozen=True, slots=True, kw_only=True)
class Close:
    """Finish the orders in progress; if `is_patient`, progress extends the deadline."""

    name: Literal["close"] = "close"
    deadline_s: float
    is_patient: bool


Asking = Fetch | Find | Check | Copy | Download | HandOver | TakeToken
OfCheckpoint = Commit | LookFor | UploadShare | Complete
Order = (
    Open
    | OfCheckpoint
    | Asking
    | Discard
    | SendFiles
    | SendEnded
    | Release
    | Publish
    | NoteEnded
    | CheckClaim
    | Close
)

# -- answers -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """The run owns the storage; `claim` is the key of its claim."""

    name: Literal["opened"] = "opened"
    claim: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A node sees the storage, and has written this token into it."""

    name: Literal["seen"] = "seen"
    key: InnerPath
    content: Ticket


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """ "warning"; "trouble" with the storage, which is retried; "blind": the node does not see the
    storage; "refused": another run owns it; "gone": the uploader has failed for good."""

    name: Literal["warning", "trouble", "blind", "refused", "gone"]
    text: Text


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """The checkpoint is forced to the disk, and in storage."""

    name: Literal["committed"] = "committed"
    trial: PlainName
    index: Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class NotCommitted:
    """ "uncommitted": the checkpoint is here and not in storage. "lost": its bytes are gone."""

    name: Literal["uncommitted", "lost"]
    trial: PlainName
    index: Bytes
    why: Text


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """A node has uploaded its share of a checkpoint: these files."""

    name: Literal["shared"] = "shared"
    trial: PlainName
    index: Bytes
    files: Facts
    empty_folders: Sequence[InnerPath]


@dataclass(frozen=True, slots=True, kw_only=True)
class Discarded:
    """No commit of these checkpoints is in progress on the node any more."""

    name: Literal["discarded"] = "discarded"
    trial: PlainName
    folders: Sequence[CheckpointFolder]


@dataclass(frozen=True, slots=True, kw_only=True)
class SentEnded:
    """Storage has all files of a trial that has ended."""

    name: Literal["sent_ended"] = "sent_ended"
    folder: TrialFolder


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """Everything in the journal before this position is visible in storage."""

    name: Literal["published"] = "published"
    segment: Bytes
    offset: Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The answer to most orders with a ticket: `problem` is why it is impossible, "" if it is
    done."""

    name: Literal["done"] = "done"
    ticket: Ticket
    problem: Text = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCheckpoint:
    """A complete checkpoint in storage, by the name of its folder."""

    folder: PlainName
    iteration: Bytes
    time_total_s: Seconds
    files: Bytes
    size_bytes: Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The answer to `Find`, newest first."""

    name: Literal["found"] = "found"
    ticket: Ticket
    checkpoints: Sequence[FoundCheckpoint]


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """The answer to `Copy`."""

    name: Literal["copied"] = "copied"
    ticket: Ticket
    files: Bytes
    size_bytes: Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Unanswered:
    """Storage has not answered."""

    name: Literal["unanswered"] = "unanswered"
    ticket: Ticket
    why: Text


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The progress of a long sync of artifacts; four zeros at its end."""

    name: Literal["progress"] = "progress"
    files: Bytes
    total_files: Bytes
    done_bytes: Bytes
    total_bytes: Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """ "failed": the uploader has given `what` up. "stuck": it cannot be removed yet."""

    name: Literal["failed", "stuck"]
    what: Text
    why: Text


@dataclass(frozen=True, slots=True, kw_only=True)
class Remaining:
    """ "left": superseded checkpoints that could not be removed. "closed": the uploader has
    finished, and these things are not in storage."""

    name: Literal["left", "closed"]
    lines: Lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """The agent has ended, and keeps what is not in storage in this folder."""

    name: Literal["kept"] = "kept"
    place: Annotated[str, Checked(_place)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """ "moving": there is progress. "replaced": another process has replaced one that died."""

    name: Literal["moving", "replaced"]


Reply = Done | Found | Copied | Unanswered
Answer = (
    Opened
    | Seen
    | Notice
    | Committed
    | NotCommitted
    | Shared
    | Discarded
    | SentEnded
    | Published
    | Reply
    | Progress
    | Failed
    | Remaining
    | Kept
    | Sign
)


def _named(kinds: object) -> dict[str, type]:
    """The classes of a union that have one name, by that name."""
    firsts = ((fields(kind)[0].default, kind) for kind in get_args(kinds))
    return {name: kind for name, kind in firsts if name is not MISSING}


ORDERS = Messages(_named(Order))
ANSWERS = Messages(
    {
        **_named(Answer),
        **dict.fromkeys(("warning", "trouble", "blind", "refused", "gone"), Notice),
        **dict.fromkeys(("uncommitted", "lost"), NotCommitted),
        **dict.fromkeys(("failed", "stuck"), Failed),
        **dict.fromkeys(("left", "closed"), Remaining),
        **dict.fromkeys(("moving", "replaced"), Sign),
    }
)
