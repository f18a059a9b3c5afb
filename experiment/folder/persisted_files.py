"""The settings of the uploader, for a run or the doctor: which files belong in storage."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from holdfast.experiment.folder import layout as names
from holdfast.experiment.folder.layout import Layout
from holdfast.syncer.artifacts.settings import UploaderSettings
from holdfast.syncer.files.tree import CLAIMS
from holdfast.syncer.stores.location import Location


def uploader_settings(
    layout: Layout,
    storage: Location | None,
    *,
    experiment_id: str,
    log_names: Sequence[str],
    artifacts: bool,
    timeout_s: float,
    disk_deadline_s: float = 0.0,
) -> UploaderSettings:
    """The settings for an experiment; `log_names` are the files with the output of trials."""
    return UploaderSettings(
        root=layout.root,
        storage=storage,
        experiment_id=experiment_id,
        journal=names.JOURNAL,
        head=names.HEAD,
        is_record=partial(_is_record, log_names),
        is_remade=_is_remade,
        is_checkpoint=names.is_checkpoint,
        private=(
            *(names.LOCK, names.LOCK_WORKERS, names.CONTROL),
            *(names.MIRROR_OF, names.MIRROR_AT, CLAIMS),
        ),
        private_inside=(names.STAGING,),
        artifacts=artifacts,
        timeout_s=timeout_s,
        disk_deadline_s=disk_deadline_s,
    )


def _is_record(log_names: Sequence[str], key: str) -> bool:
    """Whether a file is uploaded without `sync_artifacts`, because holdfast writes it.

    Files deeper in a trial's folder are the user's, whatever their names.
    """
    folder, _, name = key.rpartition("/")
    if not folder:
        return names.is_the_experiments(name)
    of_rank_0 = names.of_rank_0(name)
    return "/" not in folder and (names.is_trial_record(of_rank_0) or of_rank_0 in log_names)


def _is_remade(key: str) -> bool:
    """Whether the projector can rewrite the file from the journal wherever the experiment
    resumes."""
    folder, _, name = key.rpartition("/")
    logs = (names.STDOUT, names.STDERR)
    return not folder or ("/" not in folder and names.is_trial_record(name) and name not in logs)
