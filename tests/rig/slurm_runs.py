"""A user's script whose trials run in jobs of a real Slurm."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlencode

from tests.rig import ROOT
from tests.rig.bench import Bench
from tests.rig.slurm import SlurmCluster, wait_until

# A job gets nothing of the script's environment, so this names the script that has just begun.
PYTHON = """\
#!/bin/sh
export PYTHONPATH={root} HOLDFAST_TEST_FOLDER={folder}
export HOLDFAST_TEST_MARKS=$(ls -t {folder}/marks-* | head -n 1)
exec {python} "$@"
"""


@contextmanager
def slurm_jobs(bench: Bench, slurm: SlurmCluster, **settings: object) -> Iterator[None]:
    """The script submits two jobs with one CPU each. None is in the queue at the end. `settings`
    are those of the cluster's URI."""
    python = bench.write(
        PYTHON.format(root=ROOT, folder=bench.folder / "bench", python=sys.executable), "python"
    )
    python.chmod(0o700)
    query = {
        "nodes": 2,
        "cpus_per_node": 1,
        "python": str(python),
        "folder": str(bench.folder / "shared"),
        "controller_address": slurm.address,
        **settings,
    }
    bench.environ |= slurm.environ_of_commands()
    bench.environ["HOLDFAST_CLUSTER"] = f"slurm://main?{urlencode(query)}"
    yield
    wait_until(lambda: not slurm.run("squeue", "--noheader"))
