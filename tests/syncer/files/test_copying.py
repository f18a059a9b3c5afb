"""Where the file system shares blocks, staging a checkpoint copies nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.syncer.checkpoint.staging import stage

pytestmark = pytest.mark.process

_MIB = 1 << 20
_IMAGE_MIB = 320  # mkfs.xfs refuses less than 300


@pytest.fixture
def sharing_disk(tmp_path: Path) -> Iterator[Path]:
    """A mounted XFS, which shares blocks."""
    if os.geteuid() != 0 or shutil.which("mkfs.xfs") is None:
        pytest.skip("needs root and mkfs.xfs (package xfsprogs)")
    image, mounted = tmp_path / "image", tmp_path / "disk"
    with image.open("wb") as file:
        file.truncate(_IMAGE_MIB * _MIB)
    made = ["mkfs.xfs", "-q", "-m", "reflink=1", str(image)]
    subprocess.run(made, check=True, capture_output=True)
    mounted.mkdir()
    mount = ["mount", "-t", "xfs", "-o", "loop", str(image), str(mounted)]
    done = subprocess.run(mount, check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"this machine cannot mount an XFS image: {done.stderr.strip()}")
    try:
        yield mounted
    finally:
        subprocess.run(["umount", str(mounted)], check=True)


def test_a_checkpoint_on_a_disk_that_shares_blocks_takes_no_space(sharing_disk: Path) -> None:
    source, root = sharing_disk / "source", sharing_disk / "experiment"
    source.mkdir()
    content = os.urandom(32 * _MIB)
    (source / "weights").write_bytes(content)
    os.sync()
    before = _used(sharing_disk)
    stage(source, root / "checkpoint_000000", staging_root=root / ".staging")
    assert _used(sharing_disk) - before < _MIB
    (source / "weights").write_bytes(bytes(32 * _MIB))
    assert (root / "checkpoint_000000" / "weights").read_bytes() == content


def _used(disk: Path) -> int:
    os.sync()
    facts = os.statvfs(disk)
    return (facts.f_blocks - facts.f_bfree) * facts.f_frsize
