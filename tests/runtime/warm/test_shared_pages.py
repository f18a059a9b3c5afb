"""What a worker does at its start and at its first report leaves the pages that it shares with the
warm parent as they are, because the kernel copies each page that is written to."""

from __future__ import annotations

import subprocess
import sys

import pytest

# A process with 1,000 modules and 1,000 finalizers, each on a page of its own, as after `import
# torch`. In a fork of it, a worker prints how many pages it has touched by its first report.
FORKS = """
import os, resource, socket, sys, weakref
from types import ModuleType
from holdfast.runtime import learning, worker

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

class Object:
    pass

class Entry:
    def run(self, channel):
        {run}

kept = Object()
for number in range(1000):
    name = f"{{number:05}}" * 1000
    sys.modules[name] = ModuleType("module")
    weakref.finalize(kept, print, f"{{number:06}}" * 1000)
del name
learning.watch_children()
ours, theirs = socket.socketpair()
sys.stdout.flush()
if os.fork() == 0:
    worker.be_worker(Entry(), ours.detach())
os.wait()
# At its end this process would call its finalizers, too.
os._exit(0)
"""
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux")


def printed(run: str) -> str:
    command = [sys.executable, "-c", FORKS.format(run=run)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@linux_only
def test_a_worker_copies_no_page_for_each_module_and_finalizer_of_its_parent() -> None:
    touched = printed("learning.end_watch(); print(faults())")
    assert int(touched) < 1000


@linux_only
def test_finalizers_of_the_parent_do_not_run_in_a_worker_and_those_of_the_worker_do() -> None:
    own = "own = Object(); weakref.finalize(own, print, 'own'); globals().pop('kept')"
    assert printed(own) == "own\n"
