"""The settings of a run, from environment variables.

Some are read elsewhere too, where no run exists or this room is out of reach: `RAY_STORAGE` and
`RAY_AIR_LOCAL_CACHE_DIR` by `syncer/stores/location.py` and the completion of the command,
`HOLDFAST_OBJECTS_DIR` by `runtime/objects.py`, and `HOLDFAST_DISK_DEADLINE_S` by
processes that inherit it (`syncer/files/durable.py`). docs/layout.md lists them all.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from holdfast.dataclass import dataclass
from holdfast.trial.errors import InvalidConfig

# Whether experiments share this machine.
SHARE = "HOLDFAST_SHARE"
# Whether each run serves a page.
WEB = "HOLDFAST_WEB"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The values of environment variables; every field has a default.

    `local_dir` holds experiments before they are uploaded; `explicit_local_dir` is true if the
    user set it. `echo`: the output of workers is shown; only `init` says otherwise. `share`
    overrides the argument of `init`; `share` and `enforce_memory` are None if
    the variable is not set. Times are in seconds.
    """

    local_dir: Path
    explicit_local_dir: bool = False
    storage: str | None = None
    cluster: str | None = None
    chdir_to_trial_dir: bool = True
    config_in_rows: bool = True
    tensorboard: bool = True
    strict_metric: bool = True
    debug: bool = False
    web: bool = False
    echo: bool = True
    preload: bool = True
    shared: bool = False
    enforce_memory: bool | None = None
    share: bool | None = None
    fsync_period_s: float = 1.0
    snapshot_period_s: float = 10.0
    stop_grace_s: float = 10.0
    callback_deadline_s: float = 30.0
    tracker_deadline_s: float = 30.0
    flush_deadline_s: float = 60.0
    barrier_timeout_s: float = 1800.0
    stopped_deadline_s: float = 60.0
    disk_deadline_s: float = 300.0

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> Settings:
        """Read the variables. Raises InvalidConfig, naming the variable, for an invalid value."""
        local = environ.get("RAY_AIR_LOCAL_CACHE_DIR")
        return cls(
            local_dir=Path(local or "~/ray_results").expanduser().absolute(),
            explicit_local_dir=bool(local),
            storage=environ.get("RAY_STORAGE") or None,
            cluster=environ.get("HOLDFAST_CLUSTER") or None,
            chdir_to_trial_dir=_flag(environ, "RAY_CHDIR_TO_TRIAL_DIR", default=True),
            config_in_rows=_flag(environ, "HOLDFAST_CONFIG_IN_ROWS", default=True),
            tensorboard=_flag(
                environ,
                "HOLDFAST_TENSORBOARD",
                default=not _flag(environ, "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", default=False),
            ),
            strict_metric=not _flag(environ, "TUNE_DISABLE_STRICT_METRIC_CHECKING", default=False),
            debug=_flag(environ, "HOLDFAST_DEBUG", default=False),
            web=_flag(environ, WEB, default=False),
            shared=_flag(environ, "HOLDFAST_SHARED", default=False),
            enforce_memory=_choice(environ, "HOLDFAST_ENFORCE_MEMORY"),
            share=_choice(environ, SHARE),
            preload=_flag(environ, "HOLDFAST_PRELOAD", default=True),
            fsync_period_s=_seconds(environ, "HOLDFAST_FSYNC_PERIOD_S", 1.0),
            snapshot_period_s=_seconds(environ, "HOLDFAST_SNAPSHOT_PERIOD_S", 10.0),
            stop_grace_s=_seconds(environ, "HOLDFAST_STOP_GRACE_S", 10.0),
            callback_deadline_s=_seconds(environ, "HOLDFAST_CALLBACK_DEADLINE_S", 30.0),
            tracker_deadline_s=_seconds(environ, "HOLDFAST_TRACKER_DEADLINE_S", 30.0),
            flush_deadline_s=_seconds(environ, "HOLDFAST_FLUSH_DEADLINE_S", 60.0),
            barrier_timeout_s=_seconds(environ, "HOLDFAST_BARRIER_TIMEOUT_S", 1800.0),
            stopped_deadline_s=_seconds(environ, "HOLDFAST_STOPPED_DEADLINE_S", 60.0),
            disk_deadline_s=_seconds(environ, "HOLDFAST_DISK_DEADLINE_S", 300.0),
        )


def _choice(environ: Mapping[str, str], name: str) -> bool | None:
    """None if the variable is not set."""
    return _flag(environ, name, default=False) if environ.get(name) else None


def _flag(environ: Mapping[str, str], name: str, *, default: bool) -> bool:
    value = environ.get(name, "").lower()
    if value in ("", "0", "1", "true", "false"):
        return value in ("1", "true") if value else default
    raise InvalidConfig(f"the environment variable {name} must be 0 or 1, not {value!r}")


def _seconds(environ: Mapping[str, str], name: str, default: float) -> float:
    value = environ.get(name)
    try:
        seconds = float(value) if value else default
    except ValueError:
        seconds = -1.0
    if seconds < 0:
        raise InvalidConfig(
            f"the environment variable {name} must be a number of seconds, not {value!r}"
        )
    return seconds
