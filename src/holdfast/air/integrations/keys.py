"""Reads keys and settings from the files in which users keep them."""

from __future__ import annotations

import configparser
import os
from collections.abc import Sequence
from pathlib import Path


def read_key(path: str | os.PathLike[str]) -> str:
    """The key in a file. Raises ValueError, naming the file, if there is none."""
    try:
        key = Path(path).expanduser().read_text().strip()
    except OSError as error:
        raise ValueError(f"api_key_file={os.fspath(path)!r} cannot be read: {error}") from error
    if not key:
        raise ValueError(f"api_key_file={os.fspath(path)!r} is empty")
    return key


def setting_in(files: Sequence[Path], section: str, name: str) -> str:
    """A setting in INI files, of which the later ones take precedence; "" if none has it."""
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read(files)
    except configparser.Error:
        return ""
    return parser.get(section, name, fallback="")
