"""Identifies the boot of the operating system. A new boot has lost what was only in memory."""

from __future__ import annotations

from pathlib import Path


def boot_id() -> str:
    """An id that changes when the machine restarts; "" if the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
