"""optuna-dashboard on the same experiment, exported to SQLite: in an environment of its own."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from benchmarks.measure import ScriptFailed, environment, finish
from benchmarks.page.server import Server

_ROOT = Path(__file__).resolve().parents[2]
_VENV = _ROOT / ".venvs" / "optuna-dashboard"
# A trial in the plot of the history, and a trial's curve below it.
POINT = "#plot-history .scatterlayer .point"
CURVES = "#graph-intermediate-values .scatterlayer .trace"
_BEGINS_S = 120.0
_ENDS_S = 20.0


def made_environment() -> Path:
    """The programs of an environment with holdfast, Optuna and optuna-dashboard, made if missing.

    Raises ScriptFailed.
    """
    programs = _VENV / "bin"
    if not (programs / "optuna-dashboard").exists():
        finish([sys.executable, "-m", "venv", str(_VENV)])
        packages = ["--editable", str(_ROOT), "optuna", "optuna-dashboard"]
        finish([str(programs / "python"), "-m", "pip", "install", "--quiet", *packages])
    return programs


def version(programs: Path) -> str:
    """`optuna-dashboard 0.21.0 and Optuna 5.0.0`, as installed."""
    read = "from importlib.metadata import version; import json"
    print_ = "print(json.dumps([version('optuna-dashboard'), version('optuna')]))"
    dashboards, optunas = finish([str(programs / "python"), "-c", f"{read}; {print_}"]).told
    return f"optuna-dashboard {dashboards} and Optuna {optunas}"


def export(programs: Path, experiment: Path, database: Path) -> float:
    """Write the experiment as a study; return the seconds that it took."""
    command = [str(programs / "python"), "-m", "holdfast", "export", "--optuna"]
    return finish([*command, f"sqlite:///{database}", str(experiment)]).wall_s


@contextmanager
def dashboard(programs: Path, database: Path) -> Iterator[Server]:
    """Serve the only study. Yields when a browser can connect. Raises ScriptFailed."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [str(programs / "optuna-dashboard"), "--port", str(port), f"sqlite:///{database}"]
    began_s = time.monotonic()
    out = subprocess.DEVNULL
    with subprocess.Popen(command, stdin=out, stdout=out, stderr=out, env=environment()) as run:
        try:
            _wait_until_listening(run, port)
            url = f"http://127.0.0.1:{port}/dashboard/studies/1"
            yield Server(pid=run.pid, url=url, began_s=began_s)
        finally:
            run.send_signal(signal.SIGTERM)
            run.wait(_ENDS_S)


def _wait_until_listening(run: subprocess.Popen[bytes], port: int) -> None:
    by_s = time.monotonic() + _BEGINS_S
    while time.monotonic() < by_s and run.poll() is None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
            return
        time.sleep(0.05)
    raise ScriptFailed("optuna-dashboard does not listen")
