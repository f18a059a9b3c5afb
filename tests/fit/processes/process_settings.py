"""What a script may set for its whole process: ordinary lines of user code, by name.

Whoever imports this module makes the settings that the environment names: the script, and the
process from which the trials are forked.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

NAMES = "TEST_PROCESS_SETTINGS"
SETTINGS = {
    "sockets": "import socket; socket.setdefaulttimeout(30)",
    "sockets do not wait": "import socket; socket.setdefaulttimeout(0)",
    "no excepthook": "import sys; sys.excepthook = None",
    "excepthook deleted": "import sys; del sys.excepthook",
    "no excepthook of threads": "import threading; threading.excepthook = None",
    "SIGCHLD ignored": "import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
    "signals blocked": (
        "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())"
    ),
    "wake-up descriptor": (
        "import signal, socket; pair = socket.socketpair(); pair[1].setblocking(False)\n"
        "signal.set_wakeup_fd(pair[1].fileno())"
    ),
    "descriptors closed": "import os; [os.close(fd) for fd in (0, 1, 2)]",
    "output closed": "import os; [os.close(fd) for fd in (1, 2)]",
    "stdout closed": "import sys; sys.stdout.close()",
    "stderr detached": "import sys; sys.stderr.detach()",
    "streams are None": "import sys; sys.stdin = sys.stdout = sys.stderr = None",
    "streams replaced": "import io, sys; sys.stdout = sys.stderr = io.StringIO()",
    "a stream that only writes": (
        "import sys; sys.stderr = type('Log', (), {'write': lambda self, text: None})()"
    ),
    "warnings are errors": "import warnings; warnings.simplefilter('error')",
    "no unraisablehook": "import sys; sys.unraisablehook = None",
    "trace": (
        "import sys, threading; sys.settrace(lambda *_: None); threading.settrace(lambda *_: None)"
    ),
    "profile": (
        "import sys, threading; sys.setprofile(lambda *_: None); "
        "threading.setprofile(lambda *_: None)"
    ),
    "gc disabled": "import gc; gc.disable(); gc.freeze()",
    "seed": "import random; random.seed(1)",
    "no rights": "import os; os.umask(0o777)",
    "own rights": "import os; os.umask(0o077)",
    "locale": "import locale; locale.setlocale(locale.LC_ALL, 'C')",
    "signals ignored": (
        "import signal; names = (signal.SIGTERM, signal.SIGINT, signal.SIGPIPE, signal.SIGHUP)\n"
        "for name in names: signal.signal(name, signal.SIG_IGN)"
    ),
    "alarm": (
        "import signal; signal.signal(signal.SIGALRM, lambda *_: None); "
        "signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)"
    ),
    "faulthandler": "import faulthandler; faulthandler.enable(); faulthandler.disable()",
    "logging disabled": "import logging; logging.disable(logging.CRITICAL)",
    "loggers": "import logging; logging.setLoggerClass(type('L', (logging.Logger,), {}))",
    "recursion limit": "import sys; sys.setrecursionlimit(100_000)",
    "switch interval": "import sys; sys.setswitchinterval(1)",
    "digits": "import sys; sys.set_int_max_str_digits(640)",
    "decimals": (
        "import decimal; decimal.DefaultContext.prec = 1; "
        "decimal.setcontext(decimal.Context(prec=1, traps=[decimal.Inexact]))"
    ),
    "temporary folder": (
        "import os, tempfile; tempfile.tempdir = os.environ['TMPDIR'] = '/nonexistent'"
    ),
    "no home": "import os; os.environ.pop('HOME', None)",
    "language": "import os; os.environ['LANG'] = os.environ['LC_ALL'] = 'C'",
    "time zone": "import os, time; os.environ['TZ'] = 'Asia/Kolkata'; time.tzset()",
    "no environment": "import os; os.environ.clear()",
    "event loops": (
        "import asyncio\n"
        "class Policy(asyncio.DefaultEventLoopPolicy):\n"
        "    def new_event_loop(self): raise RuntimeError('mine')\n"
        "asyncio.set_event_loop_policy(Policy())"
    ),
    "no print": "import builtins; builtins.print = None",
    "start method": (
        "import multiprocessing; multiprocessing.set_start_method('spawn', force=True)"
    ),
    "few files": ("import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))"),
    "small files": (
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))"
    ),
    "small stacks": "import threading; threading.stack_size(1 << 16)",
    "other folder": "import os, tempfile; os.chdir(tempfile.mkdtemp())",
    "no bytecode": (
        "import sys; sys.dont_write_bytecode = True; sys.pycache_prefix = '/nonexistent'"
    ),
    "no argv": "import sys; sys.argv = []",
}


def make(name: str) -> None:
    """What is already so, such as a closed stream, may fail."""
    with suppress(OSError, ValueError, AttributeError):
        exec(SETTINGS[name], {})


def train(config: dict[str, Any]) -> None:
    """Report twice, the second time with a checkpoint. `set` makes a setting here."""
    from holdfast import tune

    folder = tune.staging_directory()
    if "set" in config:
        make(config["set"])
    tune.report({"i": 0})
    with open(os.path.join(folder, "weights"), "w") as file:
        file.write("1")
    tune.report({"i": 1}, checkpoint=tune.Checkpoint.from_directory(folder))


for _name in filter(None, os.environ.get(NAMES, "").split(",")):
    make(_name)
