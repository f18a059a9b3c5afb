"""Names of Ray that holdfast does not have: what to use, and which section of docs/differences.md
has more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from holdfast.dataclass import dataclass
from holdfast.replaced import REPLACED

_NOT_YET: Final = "not-there-yet"
_TASKS: Final = "tasks-actors-and-what-else-is-in-ray"


@dataclass(frozen=True, slots=True)
class Missing:
    """What to use instead, and the section of docs/differences.md."""

    use: str
    section: str


# Packages of Ray of which holdfast has nothing. Each of their names can be imported.
PACKAGES: Final[Mapping[str, Missing]] = {
    "actor": Missing("processes: there are no actors", _TASKS),
    "autoscaler": Missing("holdfast.init(cluster=...), with Slurm nodes that come and go", _TASKS),
    "cluster_utils": Missing("holdfast.init(cluster=holdfast.cluster.Local(agents=...))", _TASKS),
    "dag": Missing("plain Python calls: there are no tasks", _TASKS),
    "experimental": Missing("the names of holdfast itself", _TASKS),
    "job_submission": Missing("`holdfast queue add -- python script.py`", _TASKS),
    "llm": Missing("Ray itself", _TASKS),
    "rllib": Missing("Ray itself: holdfast has no reinforcement learning", _TASKS),
    "runtime_env": Missing("a dict, as in holdfast.init(runtime_env={'env_vars': {...}})", _TASKS),
    "serve": Missing("Ray itself: holdfast serves no models", _TASKS),
    "util": Missing("plain Python: it belongs to tasks and actors", _TASKS),
    "workflow": Missing("a script, which resumes when it is started again", _TASKS),
}

_OTHER_IDS: Final = "nothing: there are no tasks and actors"
# By module path. What to use: the names that are replaced so.
_MISSING: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    "": (
        _TASKS,
        {
            _OTHER_IDS: "ActorClassID ActorID ClientBuilder DynamicObjectRefGenerator "
            "FunctionID JobID Language NodeID ObjectID ObjectRefGenerator "
            "PlacementGroupID SCRIPT_MODE TaskID UniqueID WORKER_MODE WorkerID cancel "
            "cpp_function internal java_actor_class java_function method widgets",
            "`holdfast show` and the progress table": "timeline",
            "holdfast.init(cluster=holdfast.cluster.Ray(address))": "client",
            "logging of the script itself": "LoggingConfig",
        },
    ),
}


def missing(path: str, name: str) -> Missing | None:
    """What to use for a name of Ray that holdfast does not have; None if it is not known."""
    package = PACKAGES.get(path.partition(".")[0])
    if package is not None:
        return package
    home = f"holdfast.{path}".rstrip(".")
    if (use := REPLACED.get(home, {}).get(name)) is not None:
        return Missing(use, _TASKS if not path else _NOT_YET)
    section, groups = _MISSING.get(path, ("", {}))
    use = next((use for use, names in groups.items() if name in names.split()), None)
    return None if use is None else Missing(use, section)


def known_missing(path: str) -> frozenset[str]:
    """The names of a module that `missing` knows."""
    _, groups = _MISSING.get(path, ("", {}))
    listed = (name for names in groups.values() for name in names.split())
    return frozenset([*listed, *REPLACED.get(f"holdfast.{path}".rstrip("."), {})])
