"""A worker that the kernel kills because memory ran out is reported as such, and has its own
budget."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.process

GREEDY = """
import os, sys
from holdfast import tune

def train(config):
    if tune.get_context().get_attempt() <= config["times"]:
        taken = []
        while True:
            taken.append(os.urandom(1 << 20))
    tune.report({"attempt": tune.get_context().get_attempt()})

if __name__ == "__main__":
    with open(sys.argv[1] + "/cgroup.procs", "w") as file:
        file.write(str(os.getpid()))
    budget = tune.FailureConfig(max_out_of_memory=1)
    for times in (1, 2):
        run = tune.RunConfig(storage_path="results", verbose=0, failure_config=budget)
        (result,) = tune.Tuner(train, param_space={"times": times}, run_config=run).fit()
        failed = result.error and f"{result.error.failure.kind}: {result.error}"
        print(failed or f"attempt {result.metrics['attempt']}")
"""
KILLED = """
import os, signal
from holdfast import tune

def train(config):
    os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    run = tune.RunConfig(storage_path="results", verbose=0)
    print(tune.Tuner(train, run_config=run).fit()[0].error)
"""
LIMIT_BYTES = 300 << 20


@pytest.fixture
def group() -> Iterator[Path | None]:
    """A control group with little memory; None if the user cannot create one."""
    made = None
    with suppress(OSError, StopIteration):
        lines = Path("/proc/self/cgroup").read_text().splitlines()
        own = next(line.split(":", 2)[2] for line in lines if ":memory:" in line)
        wanted = Path(f"/sys/fs/cgroup/memory{own}", "holdfast-test")
        wanted.mkdir()
        made = wanted
        (made / "memory.limit_in_bytes").write_text(str(LIMIT_BYTES))
    yield made
    if made is not None:
        made.rmdir()


def test_what_the_kernel_takes_is_out_of_memory_is_reported_and_counted_apart(
    run_script: Any, group: Path | None
) -> None:
    if group is None:  # the kernel cannot be made to kill; then only possibly out of memory
        assert "possibly out of memory" in run_script(KILLED).stdout
        return
    done = run_script(GREEDY, str(group))
    assert done.stdout.count("\n") == 2, (done.stdout, done.stderr)
    first, second = done.stdout.splitlines()
    assert first == "attempt 2", done.stderr
    assert second.startswith("memory: "), second
    assert "was killed by the kernel: out of memory" in second
