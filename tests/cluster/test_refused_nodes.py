"""A node with another holdfast or another minor version of Python is refused by name."""

from __future__ import annotations

import socket
import sys
from urllib.parse import urlencode

import pytest

from holdfast.version import VERSION
from tests.rig import ROOT
from tests.rig.bench import Bench, epochs_of

pytestmark = pytest.mark.process

# The interpreter of a node: a real agent, which takes itself for another one. The first of them
# to make the folder is as it is, unless there is none to make.
NODE = """\
import os, runpy, sys
sys.path.insert(0, {root!r})
try:
    os.mkdir({folder!r})
except OSError:
    {change}
_, module, *sys.argv[1:] = sys.argv[1:]
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""
OTHER_VERSION = "import holdfast.version; holdfast.version.VERSION = '0.0.9'"
OTHER_PYTHON = (
    "import holdfast.runtime.fleet.handshake as own; own.python_version = lambda: '3.99.1'"
)
PYTHON = ".".join(map(str, sys.version_info[:3]))


def use(bench: Bench, change: str, folder: str) -> None:
    text = NODE.format(root=str(ROOT), folder=folder, change=change)
    python = f"{sys.executable} {bench.write(text, 'node.py')}"
    query = {"agents": 2, "cpus_per_node": 1, "python": python}
    bench.environ["HOLDFAST_CLUSTER"] = f"local://?{urlencode(query)}"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            OTHER_VERSION,
            f"has holdfast 0.0.9, this machine {VERSION}: install the same version on both",
        ),
        pytest.param(
            OTHER_PYTHON,
            f"has Python 3.99.1, this machine {PYTHON}: trials are sent as pickles, which need "
            f"the same minor version on both",
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_a_cluster_of_nodes_that_cannot_be_used_is_an_error_that_names_both_versions(
    bench: Bench, change: str, told: str
) -> None:
    use(bench, change, "/no/such/folder")
    script = bench.start(checkpoint_every=9)
    assert script.ends() == 1
    script.finish_reading()
    refused = f"Each node was refused: {socket.gethostname()}"
    assert f"{refused} {told}" in script.stderr
    assert script.left() == []


def test_a_node_that_is_refused_leaves_the_others_alone(bench: Bench) -> None:
    use(bench, OTHER_VERSION, str(bench.folder / "first"))
    gate = bench.gate("any-4")
    script = bench.start(checkpoint_every=9)
    assert "has holdfast 0.0.9" in script.said("A node is refused")
    gate.open()
    script.succeeds()
    assert epochs_of(script) == [4, 4]
    assert script.left() == []
