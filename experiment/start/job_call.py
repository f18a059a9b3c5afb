"""Which experiment a `fit()` in the script of a job is: a new one, or the one that the same call
began before the script was killed."""

from __future__ import annotations

import os
from dataclasses import replace

from holdfast.dataclass import dataclass
from holdfast.experiment.folder.settings import Settings
from holdfast.experiment.queue.job_experiments import BegunExperiment, JobExperiments
from holdfast.experiment.records.opened import OpenedExperiment
from holdfast.experiment.start.fit import unique_name
from holdfast.experiment.start.request import Request
from holdfast.experiment.worker import wrap
from holdfast.experiment.worker.train_loop import TrainLoop
from holdfast.trial.tuning import ResumeConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCall:
    """The request, with a name. `has_begun`: its experiment is there, to be resumed or, if it is
    finished, to return its results."""

    request: Request
    has_begun: bool

    @property
    def resume_config(self) -> ResumeConfig:
        """A trainer's only trial resumes also after a failure, as in `Trainer.restore`."""
        is_trainer = isinstance(self.request.trainable, TrainLoop)
        return ResumeConfig(errored="resume" if is_trainer else "skip")


def called(job: JobExperiments, request: Request) -> JobCall:
    """Note the call in the job's file. Raises OSError, StorageError, and TuneError for an
    experiment that cannot be read."""
    run = request.run
    call = run.name or f"a run of {wrap.name_of(request.trainable)}"
    number = job.number(call)
    known = job.find(call, number)
    name = run.name or (known.name if known else unique_name(request.trainable))
    named = replace(request, run=replace(run, name=name))
    opened = OpenedExperiment.at(named.run, None, Settings.read(os.environ), os.environ)
    found = _experiment_id(opened)
    if known is not None:
        return JobCall(request=named, has_begun=found not in ("", known.before))
    job.note(BegunExperiment(call=call, number=number, name=name, path=opened.path, before=found))
    return JobCall(request=named, has_begun=False)


def _experiment_id(opened: OpenedExperiment) -> str:
    """The id of the newest run there; "" if there is none."""
    if not opened.exists():
        return ""
    opened.bring()
    return opened.recover().machine.spec.experiment_id
