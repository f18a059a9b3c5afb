"""What jobs are asked for. Pure: no I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field

from holdfast.dataclass import dataclass
from holdfast.runtime.engines.engine import EngineFailed, NodeKind, Offer

KIND = "slurm"
# The options of sbatch that the engine sets itself, or that would change what it prints.
_OWN_LONG = (
    "--array", "--batch", "--error", "--export", "--help", "--input", "--job-name", "--nodes",
    "--ntasks", "--output", "--parsable", "--requeue", "--signal", "--test-only", "--usage",
    "--version", "--wait", "--wrap",
)  # fmt: skip
_OWN_SHORT = frozenset("aehiJnNoVW")
# Short options without a value, which getopt would take together with others.
_FLAGS = frozenset("HIkOQsv")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmTerms:
    """What each node's job asks for, and how its agent is started.

    There are at most `nodes`. `resources` are those of every node, if they are known. Without
    `cpus` and `gpus`, a job gets the whole machine. `time` is Slurm's form of a time limit.
    `options` are further arguments of sbatch. `variables` are set for agents; everybody on the
    nodes can read them. Invitations and the output of jobs are
    below `folder`, which all nodes see. `python` is the
    command of their interpreter. Raises EngineFailed for an option that the engine sets itself.
    """

    nodes: int
    python: Sequence[str]
    folder: str
    resources: Mapping[str, float] | None = None
    partition: str = ""
    account: str = ""
    time: str = ""
    memory: str = ""
    cpus: int | None = None
    gpus: int | None = None
    options: Sequence[str] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    module: str = "holdfast.agent"

    def __post_init__(self) -> None:
        for option in self.options:
            if not is_free(option):
                raise EngineFailed(
                    f"Slurm: the option {option!r} cannot be passed to sbatch, because holdfast "
                    f"sets it itself, or because it is not one option (write --name=value)"
                )

    @property
    def offer(self) -> Offer:
        return Offer(kinds=[NodeKind(name=KIND, resources=self.resources, most=self.nodes)])


def is_free(option: str) -> bool:
    """Whether the user may pass this option to sbatch."""
    if re.fullmatch(r"-[A-Za-z].*", option):
        is_flag = option[1] in _FLAGS
        return option[1] not in _OWN_SHORT and not (is_flag and len(option) > 2)
    name = option.partition("=")[0]
    # getopt accepts the beginning of an option's name, too.
    is_own = any(own.startswith(name) for own in _OWN_LONG)
    return bool(re.fullmatch(r"--[a-z][a-z-]+", name)) and not is_own
