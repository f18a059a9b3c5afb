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
    """The command that resumes the experiment at a path or URI, with the PYTHONPATH that it needs
    to find the modules of this script."""
    modules = _module_path()
    begin = f"PYTHONPATH={shlex.quote(modules)} " if modules else ""
    return begin + holdfast_command("resume", *options, path)


def _module_path() -> str:
    """The folder of the script, if it has modules that the command needs, before the present
    PYTHONPATH; "" if nothing is needed.

    The command finds modules of the current directory, too. But it may be pasted elsewhere, so
    modules that the script has imported count in any case.
    """
    main = sys.modules.get("__main__")
    script, spec = getattr(main, "__file__", None), getattr(main, "__spec__", None)
    present = ray_path.without(os.environ).get("PYTHONPATH", "")
    if spec is not None:  # `python -m`, which finds modules in the current directory
        return present if spec.name == "holdfast.__main__" else ""
    if script is None:
        return ""  # a notebook
    folder = Path(os.path.abspath(script)).parent
    if folder == Path(sys.executable).parent:
        return present  # `holdfast resume`, perhaps with a pasted PYTHONPATH
    modules = (*folder.glob("*.py"), *folder.glob("*/__init__.py"))
    is_alone = all(str(one) == os.path.abspath(script) for one in modules)
    if (folder == Path.cwd() or is_alone) and not _imports_from(folder):
        return ""
    return os.pathsep.join(filter(None, [str(folder), present]))


def _imports_from(folder: Path) -> bool:
    """Whether the script has imported a module or a package that lies in this folder."""
    for name, module in sys.modules.copy().items():
        known = getattr(module, "__dict__", {})
        places = [known.get("__file__"), *(known.get("__path__") or ())]
        is_other = name != "__main__" and "." not in name
        if is_other and any(Path(one).parent == folder for one in places if type(one) is str):
            return True
    return False
