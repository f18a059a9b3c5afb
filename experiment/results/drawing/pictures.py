"""Writes a picture to a file, which appears when it is complete."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from holdfast.syncer.files.durable import new_file_for
from holdfast.trial.errors import InvalidConfig

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = ("png", "svg", "pdf")
_DPI = 150


def check_picture(path: str) -> str:
    """The format of a picture, from the ending of its name. Raises InvalidConfig, also if there is
    no such folder."""
    form = os.path.splitext(path)[1].removeprefix(".").lower()
    if form not in FORMATS:
        raise InvalidConfig(f"{path} does not end with .png, .svg or .pdf")
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise InvalidConfig(f"cannot write {path}: there is no directory {folder}")
    return form


def save_picture(axes: Axes, path: str) -> None:
    """Write the figure of these axes, replacing the file. Raises InvalidConfig, OSError."""
    from matplotlib import pyplot

    form, figure = check_picture(path), axes.figure
    try:
        with new_file_for(path) as file:
            figure.savefig(file, format=form, dpi=_DPI)
    finally:
        pyplot.close(figure)
