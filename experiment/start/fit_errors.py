"""The errors of `fit()`: why a run cannot start, and why it did not end well."""

from __future__ import annotations

from holdfast.experiment.control.machine_resources import MachineResources
from holdfast.experiment.control.plan import RunPlan
from holdfast.experiment.control.run import Run
from holdfast.experiment.records.place import restore_call
from holdfast.experiment.start.request import Request
from holdfast.experiment.worker.train_loop import TrainLoop
from holdfast.runtime.errors import LaunchFailed
from holdfast.scheduler.capacity import Capacity
from holdfast.scheduler.effects import Finish
from holdfast.trial.errors import ImpossibleResources, TrialError, TuneError
from holdfast.trial.resources import PlacementGroupFactory
from holdfast.trial.trial import Status


def check_resources(
    trainable: object, resources: object, host_resources: MachineResources
) -> None:
    """Refuse resources that this machine does not have: no trial would ever start.

    Raises ImpossibleResources.
    """
    if not isinstance(resources, PlacementGroupFactory):
        return
    wanted, total = resources.least_resources, dict(host_resources.total)
    if Capacity(total).ever_fits(wanted):
        return
    who, where = "each trial asks", "tune.with_resources()"
    if isinstance(trainable, TrainLoop):
        workers = resources.least_bundles - 1
        who, where = f"{workers} workers ask", f"ScalingConfig(num_workers={workers}, ...)"
    near = [name for key in wanted for name in total if _resembles(key, name)]
    hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
    raise ImpossibleResources(
        f"{who} for {wanted}, this machine has {total}: no trial could ever start.{hint} "
        f"Ask for less in {where}, or declare what the machine has in holdfast.init()",
        wanted,
        total,
    )


def _resembles(key: str, name: str) -> bool:
    """Whether the user may have meant `name`: `cpus` for `CPU`."""
    return key != name and key.lower().removesuffix("s") == name.lower()


def explained(fault: BaseException, plan: RunPlan) -> BaseException:
    """The user's error behind an error of a run."""
    if isinstance(fault, LaunchFailed):
        return TuneError(
            f"the trainable cannot be loaded in a worker process: {fault.type_name}: "
            f"{fault.message}\n\n{fault.traceback}"
        )
    return fault


def check_outcome(request: Request, outcome: Finish, plan: RunPlan) -> None:
    if outcome.reason == "abort":
        raise TuneError(outcome.message)
    if outcome.reason == "fail_fast" and request.run.failure_config.fail_fast == "raise":
        failed = [t for t in plan.machine.trials.values() if t.status is Status.ERROR]
        assert failed[0].error is not None
        raise TrialError(
            failed[0].trial_id, failed[0].error, str(plan.layout.trial(failed[0].spec))
        )


def unsaved(run: Run, plan: RunPlan) -> TuneError:
    listed = "\n  ".join(run.unsaved)
    return TuneError(
        f"the experiment has ended, but this is not in {plan.location.public}:\n  {listed}\n"
        f"Everything is kept in {plan.layout.root}. When the storage answers again, "
        f"{restore_call(plan.location.public, plan.machine.spec)} uploads it"
    )
