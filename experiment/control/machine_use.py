"""How a run uses this machine: shared with experiments of other scripts, or not; then a message
names others that use it, too."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial

from holdfast.experiment.callbacks.thread import Tell
from holdfast.experiment.control.plan import RunPlan
from holdfast.experiment.folder.settings import SHARE
from holdfast.experiment.machine.fair_share import CapacityShare, Member, total_of
from holdfast.experiment.machine.machine_share import (
    FOLDER,
    MachineFolder,
    MachineShare,
    Membership,
    member_here,
)
from holdfast.experiment.workers.shared_machines import RunMachines, of_process
from holdfast.names import printable
from holdfast.runtime.fleet.facts import detect_total
from holdfast.runtime.tasks import RunTasks
from holdfast.scheduler.capacity import Capacity
from holdfast.scheduler.events import Resumed
from holdfast.syncer.files import threads
from holdfast.trial.errors import InvalidConfig, TuneError

_LONGEST_NAME = 30


def crowding(own: Member, others: Sequence[Member], found: Mapping[str, float]) -> str:
    """At most two lines of a terminal that name another one if all of them together use more than
    the machine has; "" if there is room for all, or if all take turns.

    `found` is what the machine has unless a script's `init()` says otherwise.
    """
    outside = [one for one in others if not (own.shares and one.shares)]
    if not outside:
        return ""
    everybody = [own, *others]
    total = total_of(everybody)
    for key, amount in total.items():
        used = sum(one.uses.get(key, 0) for one in everybody)
        if used > amount:
            said = ""
            if found.get(key, amount) != amount:
                whose = "init's" if own.total.get(key) == amount else "from another script's init:"
                said = f" ({whose} num_{key.lower()}s)"
            return _text(own, outside, f"{used:g} {_plural(key, used)} of {amount:g}{said}")
    return ""


def _text(own: Member, outside: Sequence[Member], crowded: str) -> str:
    first, more = outside[0], len(outside) - 1
    name = printable(first.experiment)
    name = name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
    named = f"experiment '{name}' (process {first.pid})" if name else f"process {first.pid}"
    which = "all scripts" if more else "both scripts"
    if own.shares:
        which = "those scripts" if more else "that script"
    elif all(one.shares for one in outside):
        which = "this script"
    return (
        f"{named} {f'and {more} more run' if more else 'runs'} here, too: together they use "
        f"{crowded}. To take turns: HOLDFAST_SHARE=1 for {which}"
    )


def _plural(key: str, amount: float) -> str:
    return f"{key}s" if key in ("CPU", "GPU") and amount != 1 else key


_MANY = 1_000_000


def machine_use(
    plan: RunPlan, tasks: RunTasks, tell: Tell, closing: AsyncExitStack
) -> tuple[CapacityShare, Sequence[str]]:
    """The share of this machine's resources for the run's trials, and the files that each of
    their processes holds open. Other experiments of this user see this one until `closing`. Raises
    TuneError, InvalidConfig.

    Nothing is registered where trials run in this process, and inside a trial.
    """
    settings, host = plan.settings, plan.host_resources
    shares = host.share if settings.share is None else settings.share
    if not settings.debug and plan.runs_trials and settings.share is not False:
        member = _member(plan, shares=shares)
        try:
            folder = MachineFolder.of(os.environ)
            if shares:
                inform, fail = (lambda text: tell(text, "info")), _failing(tasks)
                share = MachineShare(folder, member, inform, fail)
                closing.push_async_callback(threads.call, share.close)
                return share, [share.workers]
            membership = Membership(folder, member)
        except (OSError, InvalidConfig) as error:
            if shares:  # else nobody asked for it
                raise TuneError(
                    f"this machine cannot be shared: {error}. Name a folder on a local disk in "
                    f"{FOLDER}, or set {SHARE}=0"
                ) from error
        else:
            closing.push_async_callback(threads.call, membership.close)
            tasks.start(threads.call(partial(_look_around, folder, member, tell)))
    machines = RunMachines(of_process, host.total)
    closing.callback(machines.close)
    return machines, ()


def _failing(tasks: RunTasks) -> Callable[[BaseException], None]:
    """Ends the run with an error, from another thread."""
    loop = asyncio.get_running_loop()

    def fail(error: BaseException) -> None:
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(tasks.fail, error)

    return fail


# A script that calls fit() again need not read it again.
_has_warned = threading.Event()


def _look_around(folder: MachineFolder, member: Member, tell: Tell) -> None:
    try:
        with folder.changing():
            members = folder.members()
    except (OSError, InvalidConfig):
        return
    others = [one for one in members.values() if one.pid != member.pid]
    if not others or _has_warned.is_set():
        return
    found = {key: amount for key, amount in detect_total().items() if key in ("CPU", "GPU")}
    if text := crowding(member, others, found):
        _has_warned.set()
        tell(text, "warning")


def _member(plan: RunPlan, *, shares: bool) -> Member:
    spec, host = plan.spec, plan.host_resources
    uses = dict(host.total)
    if spec.resources is not None:
        wanted = spec.resources.required_resources
        done = sum(trial.status.is_final for trial in plan.machine.trials.values())
        left = None if plan.proposer.total is None else max(1, plan.proposer.total - done)
        if isinstance(plan.first, Resumed):
            left = None  # finished ones may resume, too
        most = min((limit for limit in (spec.max_concurrent, left) if limit), default=_MANY)
        fit = Capacity(host.total).room(wanted, most)
        uses = {key: min(amount * fit, host.total.get(key, 0)) for key, amount in wanted.items()}
    return member_here(
        plan.layout.root.name, shares=shares, total=host.total, uses=uses, gpus=host.gpu_names
    )
