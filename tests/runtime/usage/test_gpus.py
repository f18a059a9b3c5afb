"""The part of the GPUs that each worker uses, and NVML's answers, from a library made for this."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from holdfast.runtime.usage.sampler import Gpu, GpuShare, Nvml, Sampler, share_of

GB = 1 << 30


def gpu(
    index: int,
    used: int = 0,
    rate: float | None = None,
    by_pid: dict[int, int] | None = None,
    rates: dict[int, float] | None = None,
) -> Gpu:
    return Gpu(
        index=index,
        uuid=f"GPU-{index}abc",
        used_bytes=used,
        utilisation=rate,
        process_bytes=by_pid or {},
        process_utilisation=rates or {},
    )


def test_a_worker_has_what_its_processes_use_on_all_gpus() -> None:
    gpus = [
        gpu(0, by_pid={7: 2, 8: 3, 99: 50}, rates={7: 0.5, 8: 0.25, 99: 0.1}),
        gpu(1, by_pid={8: 4}, rates={8: 0.25}),
        gpu(2, by_pid={99: 60}, rates={99: 1.0}),
    ]
    share = share_of("w", {"w": ["0", "1"]}, {7, 8}, gpus, knows_pids=True)
    assert share == GpuShare(9, 0.5)  # the mean of 0.75 and 0.25


def test_a_worker_that_uses_no_gpu_has_no_share() -> None:
    gpus = [gpu(0, used=5, by_pid={99: 5})]
    assert share_of("w", {"w": ["0"]}, {7}, gpus, knows_pids=True) == GpuShare()


@pytest.mark.parametrize("name", ["1", "GPU-1abc", "GPU-1a"])
def test_in_a_container_the_gpu_of_one_worker_counts_as_a_whole(name: str) -> None:
    gpus = [gpu(0, used=5, rate=0.1), gpu(1, used=6, rate=0.9, by_pid={7: 1})]
    held = {"w": [name], "other": ["0"]}
    assert share_of("w", held, {7}, gpus, knows_pids=False) == GpuShare(6, 0.9)


def test_in_a_container_nothing_is_known_of_a_gpu_that_workers_share() -> None:
    gpus = [gpu(0, used=5, rate=0.5)]
    held = {"w": ["0"], "other": ["0"]}
    assert share_of("w", held, {7}, gpus, knows_pids=False) == GpuShare()
    assert share_of("w", {"w": ["MIG-x"]}, {7}, gpus, knows_pids=False) == GpuShare()
    assert share_of("w", {"w": []}, {7}, gpus, knows_pids=False) == GpuShare()


# A driver with two GPUs. The process PID uses the first one.
LIBRARY = """
typedef unsigned u; typedef unsigned long long ull;
typedef struct { u pid; ull used; u gi, ci; } process;
typedef struct { u pid; ull at; u sm, mem, enc, dec; } rate;
static int a, b;
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetCount_v2(u *n) { *n = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(u i, void **h) { *h = i ? &b : &a; return 0; }
int nvmlDeviceGetUUID(void *h, char *to, u n) {
    const char *from = h == &a ? "GPU-aaa" : "GPU-bbb";
    while ((*to++ = *from++)); return 0; }
int nvmlDeviceGetMemoryInfo(void *h, ull *m) {
    m[0] = 8ull << 30; m[1] = 5ull << 30; m[2] = 3ull << 30; return 0; }
int nvmlDeviceGetUtilizationRates(void *h, u *r) { r[0] = 60; r[1] = 5; return h == &a ? 0 : 3; }
int nvmlDeviceGetComputeRunningProcesses_v3(void *h, u *n, process *p) {
    if (h == &b) { *n = 0; return 0; }
    *n = 2; p[0] = (process){PID, 2ull << 30, 0, 0}; p[1] = (process){1, ~0ull, 0, 0}; return 0; }
int nvmlDeviceGetProcessUtilization(void *h, rate *r, u *n, ull since) {
    if (h == &b) return 6;
    *n = 3; r[0] = (rate){PID, 100, 80, 0, 0, 0}; r[1] = (rate){PID, 200, 40, 0, 0, 0};
    r[2] = (rate){PID, since, 99, 0, 0, 0}; return 0; }
"""


@pytest.fixture
def library(tmp_path: Path) -> str:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler, which makes the library of this test")
    source, made = tmp_path / "nvml.c", tmp_path / "libnvml.so"
    source.write_text(LIBRARY.replace("PID", str(os.getpid())))
    subprocess.run([compiler, "-shared", "-fPIC", "-o", made, source], check=True)
    return str(made)


def test_the_driver_is_asked_for_memory_and_utilisation_of_gpus_and_processes(
    library: str,
) -> None:
    first, second = Nvml(library).gpus()
    pid = os.getpid()
    assert first == Gpu(
        index=0,
        uuid="GPU-aaa",
        used_bytes=3 * GB,
        utilisation=0.6,
        process_bytes={pid: 2 * GB},  # not that of which the driver says nothing
        process_utilisation={pid: pytest.approx(0.6)},  # type: ignore[dict-item]
    )
    assert (second.utilisation, second.process_bytes, second.process_utilisation) == (None, {}, {})


def test_rates_that_were_seen_do_not_count_again(library: str) -> None:
    nvml = Nvml(library)
    nvml.gpus()
    assert nvml.gpus()[0].process_utilisation == {}


@pytest.mark.process
def test_a_sample_has_the_gpus_of_a_worker(library: str) -> None:
    seen = Sampler(Nvml(library), knows_pids=True).sample({"w": [os.getpid(), ["0"]]})["w"]
    assert seen.gpu_memory_bytes == 2 * GB
    assert seen.gpu_utilisation == pytest.approx(0.6)


def test_a_machine_without_a_driver_and_a_library_that_is_another_are_refused() -> None:
    with pytest.raises(OSError, match="no-such"):
        Nvml("libno-such-library.so")
    with pytest.raises(OSError, match="not NVML"):
        Nvml("libc.so.6")
