"""Memory of a run whose trials read one object: `shared_object.py STORAGE SIZE_MIB READERS`.

It adds up the proportional set sizes of the script and all its processes while all readers use the
whole object.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil

import holdfast
from holdfast import tune

storage, size_mib, readers = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
READY, GO = storage / "ready", storage / "go"


def read(config: dict[str, Any]) -> None:
    began_s = time.monotonic()
    array = holdfast.get(config["data"])
    get_s = time.monotonic() - began_s
    if int(array.sum()) != array.size:
        raise ValueError("these are not the numbers that were put")
    READY.write_bytes(b"r")
    with GO.open("rb", buffering=0) as gate:
        gate.read(1)
    tune.report({"get_s": get_s})


def pss_bytes() -> int:
    script = psutil.Process()
    pids = [process.pid for process in (script, *script.children(recursive=True))]
    rollups = [Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in pids]
    kib = [line.split()[1] for text in rollups for line in text.splitlines() if line[:4] == "Pss:"]
    return 1024 * sum(map(int, kib))


def look(found: dict[str, Any], ready: int, go: int) -> None:
    for _ in range(readers):
        os.read(ready, 1)
    found["pss"] = pss_bytes()
    os.write(go, b"g" * readers)


def put_and_write(found: dict[str, Any]) -> holdfast.ObjectRef:
    array = np.ones(size_mib << 17)
    began_s = time.monotonic()
    ref = holdfast.put(array)
    found["put_s"] = time.monotonic() - began_s
    plain = Path(ref.path).with_name("plain")
    began_s = time.monotonic()
    with plain.open("wb", buffering=0) as file:
        file.write(array)  # type: ignore[arg-type]
    found["write_s"] = time.monotonic() - began_s
    plain.unlink()
    return ref


def main() -> None:
    found: dict[str, Any] = {}
    for fifo in (READY, GO):
        os.mkfifo(fifo)
    # Open for reading and writing, so that opening does not wait for the other side.
    ready, go = (os.open(fifo, os.O_RDWR) for fifo in (READY, GO))
    holdfast.init(num_cpus=readers)
    ref = put_and_write(found)
    looking = threading.Thread(target=look, args=(found, ready, go), daemon=True)
    looking.start()
    grid = tune.Tuner(
        read,
        param_space={"data": ref, "reader": tune.grid_search(list(range(readers)))},
        run_config=tune.RunConfig(storage_path=str(storage), verbose=0),
    ).fit()
    if grid.errors:
        raise SystemExit(str(grid.errors[0]))
    found["get_s"] = max(result.metrics["get_s"] for result in grid if result.metrics)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
