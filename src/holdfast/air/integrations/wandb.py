"""Weights & Biases: `WandbLoggerCallback` from outside the trials, `setup_wandb` inside them."""

from __future__ import annotations

import netrc
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from holdfast.air.integrations.run_per_trial import (
    RunPerTrial,
    StandIn,
    facts_of,
    metrics_of,
    newest_checkpoint,
    read_key,
    setting_in,
    tag_texts,
)
from holdfast.experiment.callbacks.callback import LoggerCallback as LoggerCallback
from holdfast.experiment.worker.context import get_context
from holdfast.experiment.worker.session import running
from holdfast.lazy import Framework
from holdfast.trial.errors import InvalidConfig

__all__ = ["LoggerCallback", "WandbLoggerCallback", "setup_wandb"]

WANDB = Framework(title="Weights & Biases", module="wandb", minimum="0.18")

PROJECT = "WANDB_PROJECT_NAME"
GROUP = "WANDB_GROUP_NAME"
_X_AXIS = "training_iteration"
_STOP_TAG = "stop_reason="
# A longer one is refused.
_LONGEST_TAG = 64
OFFLINE: Final = frozenset({"offline", "dryrun", "disabled"})
_SERVICE: Final = "https://api.wandb.ai"


class WandbLoggerCallback(RunPerTrial):
    """Sends every row of every trial to W&B, from a separate process.

    A trial is one run over all attempts and restores. W&B's step counts the rows that the trial
    reported, including repeated ones, because W&B drops steps that go back; charts are drawn over
    `training_iteration`, and `attempt` tells repeated rows apart. The RunConfig's tags are sent as
    `data=v3`, and the tag `stop_reason=pruned` says why a trial has ended.

    `project` (else WANDB_PROJECT_NAME, WANDB_PROJECT), `group` (else WANDB_GROUP_NAME, the
    experiment's name). `api_key` or `api_key_file`, else what `wandb login` or WANDB_API_KEY say;
    a restore takes `api_key` from there, since it is kept in no file. `excludes` are metrics to
    leave out. `log_config`: the config in each row, too. `upload_checkpoints` (older:
    `save_checkpoints`) sends those that are still there as artifacts. `kwargs` are for
    `wandb.init`, `mode="offline"` among them. `upload_timeout`, `video_kwargs` and `image_kwargs`
    are kept for scripts that have them: how long the end may take says
    HOLDFAST_TRACKER_DEADLINE_S, and rows hold no media.
    """

    def __init__(
        self,
        project: str | None = None,
        group: str | None = None,
        api_key_file: str | None = None,
        api_key: str | None = None,
        excludes: Sequence[str] | None = None,
        log_config: bool = False,
        upload_checkpoints: bool = False,
        save_checkpoints: bool = False,
        upload_timeout: int = 1800,
        video_kwargs: dict[str, Any] | None = None,
        image_kwargs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        self.project = project
        self.group = group
        self.api_key_file = api_key_file
        self.api_key = api_key
        self.excludes = list(excludes or ())
        self.log_config = log_config
        self.upload_checkpoints = upload_checkpoints or save_checkpoints
        self.upload_timeout = upload_timeout
        self.kwargs = kwargs
        self._runs = {}
        self._told_facts: dict[str, Any] = {}

    def secrets(self) -> dict[str, Any]:
        return {"api_key": self.api_key}

    def check(self, environ: Mapping[str, str]) -> None:
        """Raises ImportError without W&B, InvalidConfig if it is online without a key."""
        WANDB.check()
        if self.api_key_file:
            read_key(self.api_key_file)
        known = bool(self.api_key or self.api_key_file) or has_key(environ)
        if not known and not is_offline(environ, self.kwargs.get("mode")):
            raise InvalidConfig(
                "WandbLoggerCallback has no key: run `wandb login`, set WANDB_API_KEY, or pass "
                "api_key_file=. (api_key= is stored in no file, so a restore needs one of these.) "
                'To write to disk only: mode="offline", or WANDB_MODE=offline'
            )

    def setup(self, *args: Any, **info: Any) -> None:
        """Called in the tracker process."""
        key = self.api_key or (read_key(self.api_key_file) if self.api_key_file else None)
        if key:
            os.environ["WANDB_API_KEY"] = key

    def log_trial_result(self, iteration: int, trial: Any, result: dict[str, Any]) -> None:
        run = self._run_of(trial)
        facts = {**facts_of(result), "attempt": trial.told.attempt}
        if self._told_facts.get(trial.trial_id) != facts:
            run.config.update(facts, allow_val_change=True)
            self._told_facts[trial.trial_id] = facts
        row = metrics_of(result)
        if self.log_config:
            row["config"] = result.get("config", {})
        kept = {key: value for key, value in row.items() if key not in self.excludes}
        run.log(kept, step=trial.told.row)

    def log_trial_save(self, trial: Any) -> None:
        folder = newest_checkpoint(trial)
        if not self.upload_checkpoints or folder is None:
            return
        import wandb

        artifact = wandb.Artifact(f"checkpoint_{trial.run_id}", type="model")
        artifact.add_dir(folder)
        self._run_of(trial).log_artifact(artifact)

    def log_trial_end(self, trial: Any, failed: bool = False) -> None:
        run = self._run_of(trial)
        others = (tag for tag in run.tags or () if not tag.startswith(_STOP_TAG))
        run.tags = (*others, f"{_STOP_TAG}{trial.stop_reason}")
        run.finish(exit_code=int(failed))
        self._close(trial.trial_id)

    def on_experiment_end(self, trials: list[Any], **info: Any) -> None:
        """Leave the runs of trials that can be resumed in W&B's state for interrupted runs."""
        for trial_id, run in list(self._runs.items()):
            run.finish(exit_code=1)
            self._close(trial_id)

    def holds(self) -> frozenset[str]:
        """Trials whose runs are open: only when a run is finished has all of it arrived."""
        return frozenset(self._runs)

    def _close(self, trial_id: str) -> None:
        self._runs.pop(trial_id, None)
        self._told_facts.pop(trial_id, None)

    def _begin(self, trial: Any) -> Any:
        import wandb

        trial.init_local_path()
        given = {
            "project": self.project or os.environ.get(PROJECT) or os.environ.get("WANDB_PROJECT"),
            "group": self.group or os.environ.get(GROUP) or trial.group,
            "name": str(trial),
            "dir": trial.local_path,
            "resume": "allow",
            # Several trials run at once, each with its own W&B run in this process.
            "reinit": "create_new",
            "settings": {"console": "off", "silent": True, "x_disable_stats": True},
            **self.kwargs,
            "tags": [*(self.kwargs.get("tags") or ()), *tag_texts(trial.run_tags, _LONGEST_TAG)],
            "id": trial.run_id,
        }
        run = wandb.init(**given)
        run.config.update(trial.config, allow_val_change=True)
        run.define_metric(_X_AXIS)
        run.define_metric("*", step_metric=_X_AXIS)
        return run


def setup_wandb(
    config: dict[str, Any] | None = None,
    api_key: str | None = None,
    api_key_file: str | None = None,
    rank_zero_only: bool = True,
    *,
    trial_id: str | None = None,
    trial_name: str | None = None,
    **kwargs: Any,
) -> Any:
    """Start or resume the trial's run in this worker; returns the result of `wandb.init`.

    The run's id is the trial's, so that another attempt resumes it; `trial_id` and
    `trial_name` replace the trial's own id and name. `kwargs` are for `wandb.init`. In
    ranks other than the first, unless not `rank_zero_only`, a stand-in that takes every call and
    does nothing; outside of a trial just `wandb.init`.

    `config` becomes the config of the run. `api_key`, or the key in the file `api_key_file`,
    replaces WANDB_API_KEY.

    Raises ImportError without W&B, InvalidConfig if it is online without a key.
    """
    WANDB.check()
    session = running()
    context = get_context() if session is not None else None
    if context is not None and rank_zero_only and context.get_world_rank() > 0:
        return StandIn()
    key = api_key or (read_key(api_key_file) if api_key_file else None)
    if key:
        os.environ["WANDB_API_KEY"] = key
    if not has_key(os.environ) and not is_offline(os.environ, kwargs.get("mode")):
        raise InvalidConfig(
            "setup_wandb has no key: set WANDB_API_KEY (holdfast.init(runtime_env={'env_vars': "
            "...})), run `wandb login` on every machine, or pass mode='offline'"
        )
    import wandb

    given: dict[str, Any] = {
        "project": os.environ.get(PROJECT) or os.environ.get("WANDB_PROJECT"),
        "resume": "allow",
        **names_of(context, trial_id, trial_name),
        **kwargs,
    }
    run = wandb.init(**given)
    run.config.update(dict(config or {}), allow_val_change=True)
    return run


def names_of(context: Any, trial_id: str | None, trial_name: str | None) -> dict[str, Any]:
    """The name, id and folder of the run; `context` is None outside a trial."""
    if context is None:
        named = {"id": trial_id, "name": trial_name}
        return {key: value for key, value in named.items() if value is not None}
    rank = context.get_world_rank()
    return {
        # Two ranks cannot write one run.
        "id": (trial_id or context.get_trial_id()) + (f"-{rank}" if rank else ""),
        "name": (trial_name or context.get_trial_name()) + (f"-rank-{rank}" if rank else ""),
        "group": os.environ.get(GROUP) or context.get_experiment_name(),
        "dir": context.get_trial_dir(),
        "reinit": "finish_previous",
    }


def is_offline(environ: Mapping[str, str], mode: object) -> bool:
    """True if nothing is sent, according to the callback, the environment or `wandb offline`."""
    said = mode or environ.get("WANDB_MODE") or _setting(environ, "mode")
    return str(said).lower() in OFFLINE


def has_key(environ: Mapping[str, str]) -> bool:
    """True with a key in the environment or where `wandb login` stores one. Asks without W&B,
    whose import takes seconds."""
    if environ.get("WANDB_API_KEY") or environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    return bool(_setting(environ, "api_key")) or _in_netrc(environ)


def _in_netrc(environ: Mapping[str, str]) -> bool:
    url = environ.get("WANDB_BASE_URL") or _setting(environ, "base_url") or _SERVICE
    home = Path(environ.get("HOME", "~")).expanduser()
    places = [Path(named)] if (named := environ.get("NETRC")) else []
    for path in [*places, home / ".netrc", home / "_netrc"]:
        try:
            if netrc.netrc(path).authenticators(urlsplit(url).hostname or ""):
                return True
        except (OSError, netrc.NetrcParseError):
            continue
    return False


def _setting(environ: Mapping[str, str], name: str) -> str:
    """A setting in the files of the command `wandb`: this folder's, then the user's."""
    home = Path(environ.get("HOME", "~")).expanduser()
    user = Path(environ.get("WANDB_CONFIG_DIR") or home / ".config" / "wandb")
    return setting_in([user / "settings", Path("wandb") / "settings"], "default", name)
