"""What real workers use: exactly at their exit, and sampled while they run."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

from holdfast.runtime.local_launcher import LocalLauncher
from holdfast.runtime.usage.used import Sample, Used
from holdfast.runtime.warm import sampling
from holdfast.runtime.warm.sampling import Sampled, pause_after
from tests.rig.workers.launcher_contract import OBEYING, ask, ends, start
from tests.rig.workers.processes import Heard, wait_for_end

pytestmark = [pytest.mark.anyio, pytest.mark.process]

MB = 1 << 20
# Called in a worker: it keeps this memory, or burns this CPU time.
KEEP, BURN = "tests.rig.workers.worker_entry:keep_bytes", "tests.rig.workers.worker_entry:burn_s"
samples = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")


def used_by(heard: Heard) -> Used:
    assert heard.ending is not None
    assert heard.ending.used is not None
    return heard.ending.used


async def test_a_worker_too_short_for_a_sample_has_its_cpu_time_and_its_own_memory(
    launcher: LocalLauncher,
) -> None:
    await launcher.open(OBEYING, b"")
    worker, heard = start(launcher)
    await ask(worker, heard, "call", BURN, 0.2)
    await ask(worker, heard, "call", KEEP, 80 * MB)
    await ends(worker, heard, "return")
    idle, idle_heard = start(launcher, "idle")
    await ends(idle, idle_heard, "return")
    used = used_by(heard)
    assert 0.2 <= used.cpu_s <= used.wall_s + 0.1
    assert 70 * MB < used.memory_bytes < 120 * MB
    assert used_by(idle_heard).memory_bytes < 20 * MB


@samples
async def test_a_worker_is_sampled_while_it_runs_and_its_end_has_no_less(
    launcher: LocalLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampling, "PERIOD_S", 0.05)
    await launcher.open(OBEYING, b"")
    worker, heard = start(launcher)
    await ask(worker, heard, "call", KEEP, 80 * MB)
    while (so_far := await heard.used()).memory_bytes < 70 * MB:
        pass
    later = await heard.used()
    assert later.wall_s > so_far.wall_s > 0
    await ends(worker, heard, "return")
    used = used_by(heard)
    assert used.memory_bytes >= later.memory_bytes
    assert used.cpu_s >= later.cpu_s


def samplers() -> list[psutil.Process]:
    """Those of this process; a zombie has no command line."""
    children = psutil.Process().children()
    return [one for one in children if b"sampler" in Path(f"/proc/{one.pid}/cmdline").read_bytes()]


@samples
async def test_nobody_waits_for_a_sampler_that_hangs_or_has_been_killed(
    launcher: LocalLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampling, "PERIOD_S", 0.05)
    await launcher.open(OBEYING, b"")
    worker, heard = start(launcher)
    await heard.used()
    (sampler,) = samplers()
    os.kill(sampler.pid, signal.SIGSTOP)
    assert await ask(worker, heard, "echo", 1) == 1
    os.kill(sampler.pid, signal.SIGKILL)
    second, second_heard = start(launcher, "second")
    await ends(second, second_heard, "return")
    await ends(worker, heard, "return")
    assert used_by(second_heard).wall_s > 0
    wait_for_end(sampler.pid)


def sample(cpu_s: float, *, gpu: float | None = None) -> Sample:
    return Sample(
        cpu_s=cpu_s, memory_bytes=0, main_bytes=0, main_peak_bytes=0, gpu_utilisation=gpu
    )


def test_a_worker_that_uses_no_cpu_and_no_gpu_is_idle() -> None:
    worker = Sampled(0.0, [])
    assert worker.computes(sample(3.0), 5.0)  # nobody knows since when
    assert not worker.computes(sample(3.04), 10.0)
    assert worker.computes(sample(3.10), 15.0)
    assert worker.computes(sample(3.10, gpu=0.5), 20.0)
    assert not worker.computes(sample(3.10, gpu=0.0), 25.0)


def test_the_pause_between_samples_of_idle_workers_doubles_up_to_a_minute() -> None:
    pauses = [sampling.PERIOD_S]
    while pauses[-1] < sampling.LONGEST_S:
        pauses.append(pause_after(pauses[-1]))
    assert pauses == [5.0, 10.0, 20.0, 40.0, 60.0]
    assert pause_after(60.0) == 60.0
