"""The settings of a fleet."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

from holdfast.dataclass import dataclass
from holdfast.runtime.fleet.delivery import SharedFile

PROTOCOL = 2
# In the environment of workers: the scratch folder of their agent.
NODE_DIR = "HOLDFAST_NODE_DIR"
_LONGEST_NAME = 63
# The largest frame of an agent before the controller knows who it is.
LARGEST_BEFORE_HELLO = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSettings:
    """Times are in seconds.

    The controller's port is at `address`, a name or number of this machine that the nodes can
    reach. An agent sends a beat every `beat_s`, which the controller answers. An agent that has
    heard nothing for `lease_s` ends its workers and itself; the controller gives it up `margin_s`
    later, so that no trial runs twice. Both together are just below two beats. An agent has
    `certificate_s` to show its certificate and `hello_s` to introduce itself, over a pipe
    `pipe_hello_s` (a login takes longer), and at most `most_pending` may be doing so. After the
    end of a connection, the engine has `cause_s` to say why. An agent has `grace_s` to end in, and
    the controller waits `late_s` longer for it. A node whose disk has less than `least_free_bytes`
    is refused.
    """

    address: str = "127.0.0.1"
    beat_s: float = 5.0
    lease_s: float = 8.9
    margin_s: float = 1.0
    certificate_s: float = 5.0
    hello_s: float = 10.0
    pipe_hello_s: float = 60.0
    most_pending: int = 128
    cause_s: float = 1.0
    grace_s: float = 10.0
    late_s: float = 3.0
    least_free_bytes: int = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What every agent loads before it starts workers, in addition to entry and payload.

    `env_vars` are set in the workers. `files` are sent first; if one is a directory, it takes the
    place of `directory`. Workers import from `import_folders` too, if the node has
    them, and start in `directory`, if it is given. `learns` and `workers_move` are those of
    `LocalLauncher`. A process that is stopped is continued after `stopped_deadline_s`. `service`
    is opaque: unless it is empty, the agent's `NodeService` loads it. `ray_names`: `import ray`
    means holdfast in the workers (`holdfast.compat.ray_path`).
    """

    env_vars: Mapping[str, str] = field(default_factory=dict)
    files: Sequence[SharedFile] = ()
    import_folders: Sequence[str] = ()
    directory: str | None = None
    learns: bool = True
    workers_move: bool = False
    stopped_deadline_s: float = 0.0
    service: bytes = b""
    ray_names: bool = False


def free_name(wanted: str, taken: Iterable[str]) -> str:
    """`wanted`, or the first of `wanted-2`, `wanted-3`, ... that is not taken."""
    name, number = wanted, 1
    while name in taken:
        number += 1
        name = f"{wanted}-{number}"
    return name


def host_name(hostname: str) -> str:
    """The host's short name, as the plain name of a node."""
    short = re.sub(r"[^A-Za-z0-9_-]", "-", hostname.partition(".")[0])[:_LONGEST_NAME]
    return short.strip("-") or "node"
