"""Trials and ranks on NVIDIA GPUs: what the tests, which have none, cannot check.

`python benchmarks/gpus.py --json FILE` on a machine with a GPU and torch prints a line for each
check, and exits with 1 if one failed.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).resolve().parent / "scripts" / "training" / "on_gpus.py"
LONGEST_S = 150.0
NODE = {"HOLDFAST_CLUSTER": "local://?agents=1"}
Facts = Mapping[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="where to write the facts")
    parser.add_argument("--only", action="append", help="names of checks")
    given = parser.parse_args()
    found: dict[str, Any] = {}
    for name, check in CHECKS.items():
        if given.only and name not in given.only:
            continue
        with tempfile.TemporaryDirectory(prefix="holdfast-gpus-") as folder:
            try:
                found[name] = {"ok": True, **check(Path(folder))}
            except (AssertionError, subprocess.TimeoutExpired) as error:
                found[name] = {"ok": False, "error": str(error)[-3000:]}
        print(f"{name:28} {json.dumps(found[name])}", flush=True)
        if given.json:
            given.json.write_text(json.dumps(found, indent=1))
    sys.exit(0 if all(facts["ok"] for facts in found.values()) else 1)


def _start(part: str, folder: Path, environ: Facts | None = None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), part, str(folder)],
        env={**os.environ, **(environ or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _run(part: str, folder: Path, environ: Facts | None = None) -> dict[str, Any]:
    """Run a part of the script to its end. Returns the facts that it prints last."""
    process = _start(part, folder, environ)
    try:
        out, err = process.communicate(timeout=LONGEST_S)
    finally:
        process.kill()
    assert process.returncode == 0, f"{part} exited with {process.returncode}: {out}{err}"
    facts: dict[str, Any] = json.loads(out.splitlines()[-1])
    return facts


def _smi(query: str, of: str = "gpu") -> list[str]:
    command = ["nvidia-smi", f"--query-{of}={query}", "--format=csv,noheader,nounits"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.split("\n")[:-1]


def counted(folder: Path) -> Facts:
    """As many GPUs are found as the driver lists, and a trial sees the one that it was given."""
    facts = _run("counted", folder)
    cards = _smi("name,driver_version,memory.total")
    assert facts["detected"] == len(cards), (facts, cards)
    assert facts["seen"] == [1] * len(facts["seen"]), facts
    return {**facts, "cards": cards}


def counted_by_uuid(folder: Path) -> Facts:
    """A GPU that the user names by its UUID reaches the trial by that name."""
    uuid = _smi("uuid")[0]
    facts = _run("counted", folder, {"CUDA_VISIBLE_DEVICES": uuid})
    assert set(facts["visible"]) == {uuid}, facts
    return facts


def _early(part: str, folder: Path) -> Facts:
    facts = _run(part, folder)
    assert facts["sum"] == [9.0, 9.0], facts
    return facts


def asked_at_import(folder: Path) -> Facts:
    """The user's module calls `torch.cuda.is_available()` while it is imported."""
    return _early("asked_at_import", folder)


def computed_at_import(folder: Path) -> Facts:
    """The user's module uses the GPU while it is imported."""
    return _early("computed_at_import", folder)


def fractions(folder: Path) -> Facts:
    """Four trials with a quarter of a GPU compute there at the same time."""
    facts = _run("fractions", folder)
    assert facts["at_once"] == 4, facts
    assert set(facts["visible"]) == {facts["visible"][0]}, facts
    return facts


def ranks(folder: Path) -> Facts:
    """One rank per GPU: NCCL, and a training that fails once and resumes from its checkpoint."""
    facts = _run("ranks", folder)
    assert facts["backend"] == "nccl", facts
    assert facts["sum"] == facts["world"], facts
    assert facts["epochs"] == [0, 1, 2, 3], facts
    assert facts["resumed_at"] == 2, facts
    return facts


def ranks_of_one_gpu(folder: Path) -> Facts:
    """Two ranks share a GPU over gloo. NCCL refuses that."""
    facts = _run("ranks_of_one_gpu", folder)
    assert facts["sum"] == facts["world"] == 2, facts
    assert facts["backend"] == "gloo", facts
    assert "Duplicate GPU" in facts["nccl"], facts
    return facts


def lightning(folder: Path) -> Facts:
    """Lightning trains on the GPU of its rank."""
    facts = _run("lightning", folder)
    assert facts["used_bytes"] > 0, facts
    return facts


def out_of_memory(folder: Path) -> Facts:
    """A trial that fills the GPU fails with torch's error; its neighbour finishes."""
    facts = _run("out_of_memory", folder)
    assert facts["errors"] == 1, facts
    assert facts["finished"] == 1, facts
    assert "OutOfMemoryError" in facts["error"], facts
    return facts


def node_counted(folder: Path) -> Facts:
    """The same on an agent: it finds the GPUs of its node."""
    facts = _run("counted", folder, NODE)
    assert facts["seen"] == [1] * len(facts["seen"]), facts
    return facts


def node_fractions(folder: Path) -> Facts:
    facts = _run("fractions", folder, NODE)
    assert facts["at_once"] == 4, facts
    return facts


def node_ranks(folder: Path) -> Facts:
    facts = _run("ranks", folder, NODE)
    assert facts["backend"] == "nccl", facts
    assert facts["resumed_at"] == 2, facts
    return facts


def killed(folder: Path) -> Facts:
    return _killed(folder, {})


def node_killed(folder: Path) -> Facts:
    return _killed(folder, NODE)


def _killed(folder: Path, environ: Facts) -> Facts:
    """After SIGKILL to the script its GPU memory is free soon; a restore continues."""
    before = _smi("memory.used")
    os.mkfifo(folder / "training")
    training = os.open(folder / "training", os.O_RDWR)
    process = _start("long", folder, environ)
    ready, _, _ = select.select([training], [], [], LONGEST_S)
    assert ready, "no trial has reported a checkpoint"
    during = _smi("memory.used")
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=30)
    began = time.monotonic()
    while time.monotonic() - began < 30 and int(_smi("memory.used")[0]) > int(before[0]) + 16:
        pass  # each look takes a tenth of a second
    free_after_s = time.monotonic() - began
    after = _smi("memory.used")
    (folder / "may-end").touch()
    facts = _run("long", folder, environ)
    assert facts["epochs"] == list(range(len(facts["epochs"]))), facts
    assert facts["resumed_at"] > 0, facts
    return {
        **facts,
        "memory_before_mib": before,
        "memory_during_mib": during,
        "memory_after_mib": after,
        "free_after_s": round(free_after_s, 2),
    }


def started(folder: Path) -> Facts:
    """Seconds from the script's start to the first report from the GPU, and to that of the second
    trial; a plain script with the same work, in turns."""
    ours, plain = [], []
    for turn in range(3):
        facts = _run("started", folder / str(turn))
        ours.append((facts["first_s"], facts["second_s"]))
        plain.append(_run("plain", folder)["first_s"])
    middle = [sorted(values)[1] for values in (*zip(*ours, strict=True), plain)]
    return dict(zip(("first_s", "second_s", "plain_script_s"), middle, strict=True))


CHECKS: Mapping[str, Callable[[Path], Facts]] = {
    check.__name__: check
    for check in (
        counted,
        counted_by_uuid,
        asked_at_import,
        computed_at_import,
        fractions,
        ranks,
        ranks_of_one_gpu,
        lightning,
        out_of_memory,
        killed,
        node_counted,
        node_fractions,
        node_ranks,
        node_killed,
        started,
    )
}

if __name__ == "__main__":
    main()
