"""Every way to read or continue an experiment, each in its own process with a deadline.

`python -m tests.rig.mutation.readings SCRIPT` imports everything once. For each line on its stdin,
a JSON object of `argv`, `folder` and `deadline_s`, it forks a process that performs it, and
answers with a line. SCRIPT is a user's script with `tuner(folder, kind)`.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Self

from tests.rig import ROOT
from tests.rig.trackers.fake_tracker import told_to

# An undocumented exception of a reading in Python.
UNEXPECTED = 70
EXPECTED = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The output of one process. `status` is None if it was killed at its deadline."""

    argv: tuple[str, ...]
    status: int | None
    stdout: str
    stderr: str


class Reader:
    """A process that performs readings, as a context."""

    def __init__(self, script: Path, environ: Mapping[str, str]) -> None:
        command = [sys.executable, "-m", __name__, str(script)]
        self._process = subprocess.Popen(
            command,
            env=dict(environ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C ends the campaign, not the reading at hand
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._process.communicate()

    def perform(self, *argv: str, folder: Path, deadline_s: float) -> Reading:
        """Raises EOFError if the reader itself has died."""
        order = {"argv": argv, "folder": str(folder), "deadline_s": deadline_s}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise EOFError("the reader has died")
        said = [_beginning(folder / name) for name in _STREAMS]
        return Reading(
            argv=argv, status=json.loads(answer)["status"], stdout=said[0], stderr=said[1]
        )


_STREAMS = ("stdout", "stderr")
_MOST_BYTES = 4 << 20


def _beginning(path: Path) -> str:
    """`logs` of a file of 3 GiB prints 3 GiB."""
    with open(path, "rb") as file:
        return file.read(_MOST_BYTES).decode(errors="replace")


def main() -> None:
    """Serve until stdin ends."""
    script = _load(Path(sys.argv[1]))
    # The command's own room lies above this one, and so does the public API.
    cli, tune = (importlib.import_module(f"holdfast.{name}") for name in ("cli", "tune"))
    for name in ("pandas", "pyarrow.fs", "holdfast.api.tuner", "holdfast.cli.commands"):
        importlib.import_module(name)
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if not pid:
            _perform(order, cli, tune, script)
        status = _wait(pid, order["deadline_s"])
        print(json.dumps({"status": status}), flush=True)


def _load(path: Path) -> ModuleType:
    """Load the script as a module that workers can import, too."""
    sys.path.insert(0, str(path.parent))
    os.environ["PYTHONPATH"] = f"{path.parent}{os.pathsep}{ROOT}"
    return importlib.import_module(path.stem)


def _wait(pid: int, deadline_s: float) -> int | None:
    pidfd = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        in_time = poll.poll(deadline_s * 1000)
        if not in_time:
            os.killpg(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        return os.waitstatus_to_exitcode(status) if in_time else None
    finally:
        os.close(pidfd)


def _perform(order: Mapping[str, Any], cli: Any, tune: Any, script: Any) -> None:
    status = UNEXPECTED
    try:
        os.setsid()
        for fd, name in enumerate(_STREAMS, start=1):
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            os.dup2(os.open(os.path.join(order["folder"], name), flags, 0o600), fd)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        status = _status_of(order["argv"], cli, tune, script)
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else EXPECTED
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _status_of(argv: Sequence[str], cli: Any, tune: Any, script: Any) -> int:
    name, *arguments = argv
    if name != "python":
        return int(cli.main(argv))
    try:
        what, path = arguments
        found = _API[what](tune, script, path)
    except (tune.TuneError, OSError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return EXPECTED
    print(json.dumps(found, default=str))
    return 0


def _analysis(tune: Any, script: Any, path: str) -> Any:
    analysis = tune.ExperimentAnalysis(path)
    frames = analysis.trial_dataframes.values()
    return {"rows": sum(map(len, frames)), "trials": len(analysis.results)}


def _results(tune: Any, script: Any, path: str) -> Any:
    grid = _restored(tune, script, path).get_results()
    return {"rows": sum(len(one.metrics_dataframe) for one in grid), "trials": len(grid)}


def _restored(tune: Any, script: Any, path: str) -> Any:
    """Restore with the trainer in trainer.pkl."""
    given = [] if os.environ["SPECIMEN_HOW"] == "trainer" else [script.train]
    return tune.Tuner.restore(path, *given)


def _continue(tune: Any, script: Any, path: str) -> Any:
    """Resumes and trains to the end."""
    return _outcome(_restored(tune, script, path).fit(), path)


def _auto(tune: Any, script: Any, path: str) -> Any:
    """The same line for first start and restart."""
    folder = Path(path).parent.parent
    return _outcome(script.tuner(folder, os.environ["SPECIMEN_HOW"]).fit(resume="auto"), path)


def _outcome(grid: Any, path: str) -> Any:
    """`told` are the rows that a tracker got, each counted once."""
    told = told_to(Path(path).parent.parent / "told", "row")
    return {
        "rows": sum(len(one.metrics_dataframe) for one in grid),
        "trials": len(grid),
        "told": len({(row["trial"], row["iteration"]) for row in told}),
    }


def _can_restore(tune: Any, script: Any, path: str) -> Any:
    return {"can": tune.Tuner.can_restore(path)}


_API = {
    "analysis": _analysis,
    "results": _results,
    "can_restore": _can_restore,
    "fit": _continue,
    "auto": _auto,
}

if __name__ == "__main__":
    main()
