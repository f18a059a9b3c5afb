"""The CPU priority of services."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

# A service, and what it starts in a session of its own; their nice values, and their sessions'.
SERVICE = """
import os, subprocess, sys
from pathlib import Path
from holdfast.runtime.process_control import children_give_way, give_way

def niceness(pid):
    session = Path(f"/proc/{pid}/autogroup")
    return os.getpriority(os.PRIO_PROCESS, pid), (
        int(session.read_text().rpartition(" ")[2]) if session.exists() else None
    )

give_way(3)
child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, start_new_session=True)
children_give_way()
print(os.sched_getscheduler(0) == os.SCHED_BATCH, os.sched_getscheduler(child.pid))
print([niceness(pid) for pid in (os.getpid(), child.pid)])
child.communicate()
"""


def test_a_service_and_what_it_starts_give_way_with_their_sessions() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SERVICE],
        capture_output=True,
        text=True,
        check=True,
        start_new_session=True,
    )
    has_sessions = Path("/proc/self/autogroup").exists()
    scheduling, niceness = done.stdout.strip().splitlines()
    assert scheduling == f"True {os.SCHED_BATCH}"  # inherited; without it slices would be short
    given = os.nice(0) + 3  # the tests may run with a nice value already
    assert niceness == str([(given, given if has_sessions else None)] * 2)


# A command with a thread that has started before, in the session of a shell.
COMMAND = """
import os, threading
from pathlib import Path
from holdfast.runtime.process_control import give_way

started, end = threading.Event(), threading.Event()
def wait():
    started.set()
    end.wait()
thread = threading.Thread(target=wait)
thread.start()
started.wait()
give_way(3, with_session=False)
session = Path("/proc/self/autogroup")
print([os.getpriority(os.PRIO_PROCESS, one) for one in (0, thread.native_id)])
print(session.read_text().rpartition(" ")[2].strip() if session.exists() else 0)
end.set()
"""


def test_a_command_gives_way_with_all_its_threads_but_not_with_its_shell() -> None:
    done = subprocess.run(
        [sys.executable, "-c", COMMAND],
        capture_output=True,
        text=True,
        check=True,
        start_new_session=True,
    )
    given = os.nice(0) + 3
    assert done.stdout.split("\n")[:2] == [str([given, given]), "0"]


# A parent that waits for a service which has given way.
PARENT = """
import os, subprocess, sys
from pathlib import Path
from holdfast.runtime.process_control import hurry

give_way = "from holdfast.runtime.process_control import give_way; give_way(3); print(flush=True)"
child = subprocess.Popen([sys.executable, "-c", f"{give_way}; input()"], stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, start_new_session=True)
child.stdout.readline()
hurry(child.pid)
session = Path(f"/proc/{child.pid}/autogroup")
print(os.getpriority(os.PRIO_PROCESS, child.pid))
print(session.read_text().rpartition(" ")[2].strip() if session.exists() else os.nice(0))
child.communicate(b"\\n")
"""


def test_a_service_that_somebody_waits_for_gets_the_priority_of_that_process() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PARENT], capture_output=True, text=True, check=True
    )
    own, session = map(int, done.stdout.split())
    assert session == os.nice(0)
    is_privileged = os.geteuid() == 0
    assert own == os.nice(0) + (0 if is_privileged else 3)
