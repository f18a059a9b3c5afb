"""What trials on real GPUs use, as holdfast measures it: `gpu_usage.py STORAGE`.

It needs NVIDIA's driver, and neither CUDA nor torch. A trial that has a GPU for itself keeps it
busy, then two trials share it: one keeps it busy, the other holds memory only. Prints what each
has used, and fails if a number is impossible.
"""

import ctypes
import json
import sys
import time
from typing import Any

import holdfast
from holdfast import tune
from holdfast.runtime.usage.sampler import Nvml, has_machines_pids

MB = 1 << 20
SECONDS = 25.0


def train(config: dict[str, Any]) -> None:
    cuda = ctypes.CDLL("libcuda.so.1")
    device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    size = ctypes.c_size_t(config["mb"] * MB)
    steps = (
        cuda.cuInit(0),
        cuda.cuDeviceGet(ctypes.byref(device), 0),
        cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device),
        cuda.cuMemAlloc_v2(ctypes.byref(memory), size),
    )
    if any(steps):
        raise OSError(f"CUDA: {steps}")
    began_s, rounds = time.monotonic(), 0
    while time.monotonic() - began_s < SECONDS:
        if config["busy"]:
            cuda.cuMemsetD8_v2(memory, rounds % 256, size)
            cuda.cuCtxSynchronize()
        else:
            time.sleep(0.5)
        rounds += 1
    tune.report({"rounds": rounds})


def measured(storage: str, name: str, gpu: float, space: dict[str, Any]) -> list[Any]:
    results = tune.Tuner(
        tune.with_resources(train, {"cpu": 1, "gpu": gpu}),
        param_space=space,
        run_config=tune.RunConfig(storage_path=storage, name=name, verbose=0),
    ).fit()
    if results.num_errors:
        raise SystemExit(results.errors[0])
    return [(result.config, result.usage) for result in results]


def main() -> None:
    (storage,) = sys.argv[1:]
    knows_pids = has_machines_pids()
    print(json.dumps({"gpus": [gpu.uuid for gpu in Nvml().gpus()], "knows_pids": knows_pids}))
    holdfast.init(num_gpus=1, num_cpus=2)
    alone = measured(storage, "alone", 1, {"mb": 4000, "busy": True})
    pair = {"mb": 2000, "busy": tune.grid_search([True, False])}
    shared = measured(storage, "shared", 0.5, pair)
    for config, usage in [*alone, *shared]:
        print(json.dumps({"busy": config["busy"], **usage.columns()}))
    usage = alone[0][1]
    assert usage.gpu_memory_bytes >= 4000 * MB, usage
    assert usage.gpu_utilisation > 0.5, usage
    assert SECONDS <= usage.gpu_s < 3 * SECONDS, usage
    if knows_pids:
        (busy, idle) = (usage for _, usage in shared)
        assert busy.gpu_utilisation > 0.3 > idle.gpu_utilisation, shared
        assert all(2000 * MB <= one.gpu_memory_bytes < 4000 * MB for one in (busy, idle)), shared
    else:
        assert all(usage.gpu_memory_bytes is None for _, usage in shared), shared


if __name__ == "__main__":
    main()
