"""A folder that hides holdfast from each Python that has it in PYTHONPATH."""

from pathlib import Path

_SITE = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name == "holdfast":
            raise ModuleNotFoundError("No module named 'holdfast'")

sys.meta_path.insert(0, Hidden())
"""


def without_holdfast(folder: Path) -> str:
    """Make the folder inside this one. Returns its path."""
    hidden = folder / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text(_SITE)
    return str(hidden)
