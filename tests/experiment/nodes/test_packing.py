"""What is sent to nodes: a working directory, and the modules of the user's script."""

from __future__ import annotations

import importlib
import os
import socket
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from holdfast.experiment.nodes.packing import own_modules, pack_folder, pack_modules
from holdfast.runtime.fleet import delivery
from holdfast.trial.errors import InvalidConfig
from tests.rig import ROOT


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    (made / "data").mkdir(parents=True)
    (made / "train.py").write_text("print(1)\n")
    (made / "data" / "rows.csv").write_text("1,2\n")
    return made


def unpack(archive: Path, target: Path) -> None:
    delivery.unpack(str(archive), str(target))


def files_of(root: Path) -> list[str]:
    return sorted(
        path.relative_to(root).as_posix() for path in root.rglob("*") if not path.is_dir()
    )


def test_a_folder_arrives_with_its_files_and_modes(folder: Path, tmp_path: Path) -> None:
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    package = pack_folder(folder, tmp_path / "package")
    unpack(package.archive, target := tmp_path / "there")
    assert files_of(target) == ["data/rows.csv", "run.sh", "train.py"]
    assert (package.files, package.size_bytes, package.refused) == (3, 23, ())
    assert os.access(target / "run.sh", os.X_OK)
    assert target.stat().st_mode & 0o077 == 0


def test_caches_environments_and_version_control_are_left_out_and_what_is_named(
    folder: Path, tmp_path: Path
) -> None:
    for name in (".git", "__pycache__", "data/.venv", "my env", "results"):
        (folder / name).mkdir()
        (folder / name / "file").touch()
    (folder / "my env" / "pyvenv.cfg").touch()
    package = pack_folder(folder, tmp_path / "package", without=[folder / "results"])
    with tarfile.open(package.archive) as packed:
        assert sorted(packed.getnames()) == ["data/rows.csv", "train.py"]
    assert package.left_out == (".git", "my env", "results", "data/.venv")
    assert "Left out: .git, my env, results and 1 more" in package.told("it")


def test_what_cannot_be_sent_is_named_with_its_reason(folder: Path, tmp_path: Path) -> None:
    (folder / "out").symlink_to(tmp_path)
    (folder / "away").symlink_to("../elsewhere")
    (folder / "inside").symlink_to("train.py")
    (folder / "data" / "absolute").symlink_to(folder / "train.py")
    (folder / "data" / "up").symlink_to("..")
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind(str(folder / "socket"))
        package = pack_folder(folder, tmp_path / "package")
    assert package.refused == (
        "away (a link that leads out of the folder)",
        "out (a link that leads out of the folder)",
        "pipe (not a regular file)",
        "socket (not a regular file)",
    )
    told = package.told("the working_dir")
    assert told.startswith("sending the working_dir to each node: 5 files, 13 bytes. Not sent: ")
    assert told.endswith("pipe (not a regular file) and 1 more")
    unpack(package.archive, target := tmp_path / "there")
    for link in ("inside", "data/absolute", "data/up/train.py"):
        assert (target / link).read_text() == "print(1)\n"
    assert not os.path.isabs(os.readlink(target / "data" / "absolute"))


def test_what_the_user_cannot_read_is_named(folder: Path, tmp_path: Path) -> None:
    (folder / "secret").mkdir()
    (folder / "key").touch()
    for path in (folder / "secret", folder / "key"):
        path.chmod(0)
    command = [sys.executable, "-c", PACK, str(folder), str(tmp_path / "package")]
    if os.geteuid() == 0:  # root reads everything, by this capability
        command = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", *command]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.split(" | ") == [
        "key (this user cannot read it)",
        f"{folder / 'secret'} (Permission denied)",
    ]


PACK = """
import sys
from pathlib import Path
from holdfast.experiment.nodes.packing import pack_folder
print(*pack_folder(Path(sys.argv[1]), Path(sys.argv[2])).refused, sep=" | ", end="")
"""


def test_a_folder_that_is_too_large_is_refused_with_what_is_largest(
    folder: Path, tmp_path: Path
) -> None:
    (folder / "data" / "more.csv").write_bytes(bytes(3_000_000))
    (folder / "model.bin").write_bytes(bytes(2_000_000))
    with pytest.raises(InvalidConfig) as caught:
        pack_folder(folder, tmp_path / "package", most_bytes=4_000_000)
    assert str(caught.value) == (
        f"{folder} has 5.0 MB, which would be sent to every node; at most 4.0 MB are. The "
        f"largest in it: data (3.0 MB), model.bin (2.0 MB), train.py (9 bytes). Name a smaller "
        f"working_dir, or put data where all nodes read it, as in the storage"
    )
    assert not (tmp_path / "package").exists()


def test_packing_can_be_interrupted(folder: Path, tmp_path: Path) -> None:
    def look() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pack_folder(folder, tmp_path / "package", look=look)


def test_the_modules_of_the_script_are_sent_and_no_installed_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "code" / "kelp_forest" / "deep").mkdir(parents=True)
    (tmp_path / "code" / "kelp_forest" / "__init__.py").touch()
    (tmp_path / "code" / "kelp_forest" / "deep" / "roots.py").touch()
    (tmp_path / "code" / "kelp_forest" / "names.txt").write_text("laminaria\n")
    (tmp_path / "code" / "kelp_alone.py").touch()
    monkeypatch.syspath_prepend(tmp_path / "code")
    importlib.import_module("kelp_forest")
    importlib.import_module("kelp_alone")
    imported = {
        name: sys.modules[name]
        for name in ("kelp_forest", "kelp_alone", "pytest", "json", "sys", "holdfast")
    }
    for name in ("kelp_forest", "kelp_alone"):
        monkeypatch.delitem(sys.modules, name)
    assert own_modules(imported) == {
        "kelp_alone.py": tmp_path / "code" / "kelp_alone.py",
        "kelp_forest": tmp_path / "code" / "kelp_forest",
    }
    package = pack_modules(imported, tmp_path / "package")
    unpack(package.archive, target := tmp_path / "there")
    assert files_of(target) == [
        "kelp_alone.py",
        "kelp_forest/__init__.py",
        "kelp_forest/deep/roots.py",
        "kelp_forest/names.txt",
    ]


def test_an_archive_that_is_damaged_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "package").write_bytes(b"nothing of the kind")
    with pytest.raises(OSError, match="package cannot be unpacked"):
        unpack(tmp_path / "package", tmp_path / "there")


def test_a_package_whose_files_lead_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "package", "w:gz") as packed:
        packed.add(__file__, arcname="../outside.py")
    with pytest.raises(OSError, match="package cannot be unpacked"):
        unpack(tmp_path / "package", tmp_path / "there")
    assert not (tmp_path / "outside.py").exists()


@pytest.mark.parametrize("leads_to", ["/etc", "../..", "sub/../../x"])
def test_a_link_out_of_the_folder_is_refused(tmp_path: Path, leads_to: str) -> None:
    with tarfile.open(tmp_path / "package", "w:gz") as packed:
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, leads_to
        packed.addfile(link)
    with pytest.raises(OSError, match="package cannot be unpacked"):
        unpack(tmp_path / "package", tmp_path / "there")
    assert not os.path.lexists(tmp_path / "there" / "link")
