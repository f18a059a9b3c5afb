"""The commands that messages suggest, ready to paste into the shell that started this process."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

from holdfast import ray_path
from holdfast.syncer.errors import redact


def holdfast_command(*words: str) -> str:
    """`holdfast WORDS`, quoted and without credentials; with the path of Python, if the shell
    would not find the command of this environment."""
    found = shutil.which("holdfast")
    is_ours = found is not None and os.path.dirname(found) == os.path.dirname(sys.executable)
    program = ["holdfast"] if is_ours else [sys.executable, "-m", "holdfast"]
    return shlex.join([*program, *map(redact, words)])


def resume_command(path: str, *options: str) -> str:
    """The command that resumes the experiment at a path or URI, in any folder: it finds the
    modules of the script in the `module_path` that the experiment has recorded."""
    return holdfast_command("resume", *options, path)


def module_path() -> str:
    """The folder in which this script finds its own modules, and the present PYTHONPATH, joined as
    in the latter; "" in a notebook without a PYTHONPATH. For `holdfast resume` there is only the
    PYTHONPATH."""
    main = sys.modules.get("__main__")
    script, spec = getattr(main, "__file__", None), getattr(main, "__spec__", None)
    given = filter(None, ray_path.without(os.environ).get("PYTHONPATH", "").split(os.pathsep))
    folder = Path(os.path.abspath(script)).parent if script is not None else None
    if folder is not None and spec is not None:  # `python -m package.train`
        is_ours = spec.name.partition(".")[0] == __name__.partition(".")[0]
        folder = None if is_ours else (folder, *folder.parents)[spec.name.count(".")]
    elif folder == Path(sys.executable).parent:
        folder = None  # the command
    return os.pathsep.join([*([str(folder)] if folder else []), *map(os.path.abspath, given)])
