"""Imports of the first worker are there when the next one starts.

With real processes, and small packages in place of installed distributions and the user's code.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from holdfast.runtime.local_launcher import LocalLauncher
from holdfast.runtime.warm import succession
from holdfast.runtime.warm.client import LocalWorker
from tests.rig.free_tasks import free_tasks
from tests.rig.workers.processes import Heard, Lifeline, wait_for_end, warm_parent

pytestmark = [pytest.mark.anyio, pytest.mark.process]

OBEYING = "tests.rig.workers.worker_entry:OBEYING"
Write = Callable[..., None]

# Workers wait twice as long for a successor, long enough for a busy machine.
TOOK_S = 15.0
# A distribution whose modules record the process that imported them.
KELP = {"kelp": "import os, kelp.blade\npid = os.getpid()", "kelp.blade": "import os"}
# The user's code: it is not installed.
USER = """
import importlib, os, sys

def bring(*names):
    for name in names:
        importlib.import_module(name)

def has(*names):
    return [name for name in names if name in sys.modules]

def value(module, attribute):
    return getattr(importlib.import_module(module), attribute)
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Install modules, by their names; the folder of the user's own comes first."""
    site = tmp_path / "site-packages"
    users = tmp_path / "users"
    users.mkdir()
    (users / "mine.py").write_text(USER)
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.syspath_prepend(str(users))

    def write(**sources: str) -> None:
        names = {name.replace("_of_", "."): text for name, text in sources.items()}
        for name, text in names.items():
            parts = name.split(".")
            is_package = any(other.startswith(f"{name}.") for other in names)
            file = site.joinpath(*parts, "__init__.py") if is_package else site.joinpath(*parts)
            file = file if is_package else file.with_suffix(".py")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)

    return write


@pytest.fixture
def kelp(installed: Write) -> None:
    installed(**KELP)


def start(launcher: LocalLauncher, name: str = "worker") -> tuple[LocalWorker, Heard]:
    heard = Heard()
    return launcher.launch(name, heard), heard


async def ask(worker: LocalWorker, heard: Heard, *message: Any) -> Any:
    worker.send([*message])
    return (await heard.message())[-1]


async def ends(worker: LocalWorker, heard: Heard, *message: Any) -> str:
    worker.send([*message])
    return await heard.exit()


async def learned_by(launcher: LocalLauncher, function: str, *arguments: Any) -> list[str]:
    """The modules that a first worker with this call has imported, as it reports them."""
    worker, heard = start(launcher, "first")
    await ask(worker, heard, "call", function, *arguments)
    names: list[str] = await ask(worker, heard, "learned")
    assert await ends(worker, heard, "return") == "exited with status 0"
    return names


async def loaded_in_the_next(launcher: LocalLauncher, *names: str) -> list[str]:
    """The modules of these that a new worker has without importing them."""
    worker, heard = start(launcher, "next")
    found: list[str] = await ask(worker, heard, "call", "mine:has", *names)
    assert await ends(worker, heard, "return") == "exited with status 0"
    return found


# -- what is learned, and had ready ---------------------------------------------------------------


async def test_the_second_worker_has_what_the_first_has_imported(
    launcher: LocalLauncher, kelp: None
) -> None:
    await launcher.open(OBEYING, b"")
    names = await learned_by(launcher, "mine:bring", "kelp", "colorsys")
    assert names == ["kelp", "kelp.blade", "colorsys"]
    launcher.learn(names, TOOK_S)
    worker, heard = start(launcher, "next")
    assert await ask(worker, heard, "call", "mine:has", *names) == names
    facts = await ask(worker, heard, "tell")
    assert await ask(worker, heard, "call", "mine:value", "kelp", "pid") == facts["parent"]
    assert await ask(worker, heard, "learned") == []


async def test_the_next_worker_finds_the_environment_of_the_first(
    launcher: LocalLauncher, kelp: None
) -> None:
    await launcher.open(OBEYING, b"")
    before, heard = start(launcher, "before")
    facts = await ask(before, heard, "tell")
    launcher.learn(["kelp"], TOOK_S)
    after, heard = start(launcher, "after")
    told = await ask(after, heard, "tell")
    assert told["environ"] == facts["environ"]
    assert len(told["fds"]) == len(facts["fds"])
    assert told["frozen"] > facts["frozen"]


LEARNED = {
    "not the user's modules": ("import kelp", "", ["kelp"]),
    "not after a change of the environment": (
        "",
        "import os\n    os.environ['A'] = 'b'\n    import kelp",
        [],
    ),
    "what was imported before it": (
        "import kelp, os",
        "os.environ['A'] = 'b'\n    import reef",
        ["kelp"],
    ),
    "not after a change by a library that is called": (
        "import dot",
        "dot.load()\n    import kelp",
        ["dot"],
    ),
    "not where names may mean other modules": (
        "import sys",
        "sys.path.insert(0, '/elsewhere')\n    import kelp",
        [],
    ),
}


@pytest.mark.parametrize("case", LEARNED)
async def test_what_is_learned_of_a_trial(
    launcher: LocalLauncher, installed: Write, tmp_path: Path, case: str
) -> None:
    top, body, learned = LEARNED[case]
    installed(kelp="", reef="", dot="import os\ndef load():\n    os.environ['HOME_OF'] = '/data'")
    code = f"{top}\ndef go():\n    {body or 'pass'}"
    (tmp_path / "users" / "trial.py").write_text(code)
    await launcher.open(OBEYING, b"")
    assert await learned_by(launcher, "trial:go") == learned


async def test_what_a_module_sets_when_it_is_imported_is_not_such_a_change(
    launcher: LocalLauncher, installed: Write
) -> None:
    installed(reef="import os\nos.environ['REEF'] = '1'\nimport kelp", kelp="")
    await launcher.open(OBEYING, b"")
    names = await learned_by(launcher, "mine:bring", "reef")
    assert names == ["reef", "kelp"]
    launcher.learn(names, TOOK_S)
    worker, heard = start(launcher)
    assert (await ask(worker, heard, "tell"))["environ"]["REEF"] == "1"


async def test_what_a_module_does_at_the_end_each_worker_does(
    launcher: LocalLauncher, installed: Write, tmp_path: Path
) -> None:
    diary = tmp_path / "diary"
    code = f"import atexit\natexit.register(lambda: open({str(diary)!r}, 'a').write('end '))"
    installed(kelp=code)
    await launcher.open(OBEYING, b"")
    launcher.learn(await learned_by(launcher, "mine:bring", "kelp"), TOOK_S)
    assert await loaded_in_the_next(launcher, "kelp") == ["kelp"]
    assert diary.read_text() == "end end "


async def test_what_modules_print_when_they_are_imported_is_not_printed_again(
    launcher: LocalLauncher, installed: Write, capfd: pytest.CaptureFixture[str]
) -> None:
    installed(kelp="import os\nprint('hello', flush=True)\nos.system('echo child')")
    await launcher.open(OBEYING, b"")
    launcher.learn(["kelp"], TOOK_S)
    worker, heard = start(launcher)
    await ask(worker, heard, "call", "mine:has", "kelp")
    os.write(1, b"mine\n")
    assert capfd.readouterr().out == "mine\n"


async def test_what_later_workers_import_is_learned_too(
    launcher: LocalLauncher, installed: Write
) -> None:
    installed(kelp="", reef="")
    await launcher.open(OBEYING, b"")
    launcher.learn(["kelp"], TOOK_S)
    assert await loaded_in_the_next(launcher, "kelp") == ["kelp"]
    names = await learned_by(launcher, "mine:bring", "reef")
    assert names == ["reef"]
    launcher.learn(names, TOOK_S)
    # The second successor is not awaited: it is used once it is ready.
    found: list[str] = []
    while found != ["kelp", "reef"]:
        found = await loaded_in_the_next(launcher, "kelp", "reef")


async def test_a_successor_that_is_followed_ends_when_its_workers_have(
    launcher: LocalLauncher, installed: Write
) -> None:
    installed(kelp="", reef="")
    await launcher.open(OBEYING, b"")
    launcher.learn(["kelp"], TOOK_S)
    worker, heard = start(launcher, "of the first")
    first = (await ask(worker, heard, "tell"))["parent"]
    launcher.learn(["reef"], TOOK_S)
    parent = first
    while parent == first:
        other, heard_too = start(launcher, "of the second")
        parent = (await ask(other, heard_too, "tell"))["parent"]
        await ends(other, heard_too, "return")
    assert psutil.pid_exists(first)
    await ends(worker, heard, "return")
    await asyncio.get_running_loop().run_in_executor(None, wait_for_end, first)


async def test_it_can_be_switched_off(lifeline: Lifeline, kelp: None) -> None:
    launcher = LocalLauncher(
        tasks=free_tasks(), environ=os.environ, inherited_fds=[lifeline.fd], learns=False
    )
    await launcher.open(OBEYING, b"")
    assert await learned_by(launcher, "mine:bring", "kelp") == []
    launcher.learn(["kelp"], TOOK_S)
    assert await loaded_in_the_next(launcher, "kelp") == []
    await launcher.close()


# -- what must not be shared, or goes wrong -------------------------------------------------------

HARM = {
    "a thread": "from threading import *\nThread(target=Event().wait, daemon=True).start()",
    "a crash": "import ctypes\nctypes.string_at(0)",
    "an exit": "import os\nos._exit(0)",
    "a process": "import subprocess\nchild = subprocess.Popen(['sleep', '60'])",
    "a connection": "import socket\nends = socket.socketpair()",
    # As a GPU's driver leaves it open; a forked process cannot use it.
    "a device": "device = open('/dev/full')",
    "a temporary folder": "import tempfile\nfolder = tempfile.TemporaryDirectory()",
    "files to remove": "import atexit, shutil\natexit.register(shutil.rmtree, '/not/there', True)",
    "an exception": "raise RuntimeError('not today')",
    "an end": "raise SystemExit(3)",
}


@pytest.mark.parametrize("harm", HARM)
async def test_a_module_that_does_harm_is_left_to_those_who_import_it(
    launcher: LocalLauncher, installed: Write, harm: str
) -> None:
    installed(before="", harmful=HARM[harm], after="")
    await launcher.open(OBEYING, b"")
    launcher.learn(["before", "harmful", "after"], 10.0)
    found = await loaded_in_the_next(launcher, "before", "harmful", "after")
    assert found == ["before", "after"]


async def test_so_is_one_that_imports_it(launcher: LocalLauncher, installed: Write) -> None:
    installed(harmful=HARM["a thread"], kelp="import harmful", reef="import kelp", sand="")
    await launcher.open(OBEYING, b"")
    launcher.learn(["sand", "reef", "kelp", "harmful", "last"], 10.0)
    # Each try finds one of them; the last one gets the modules before it.
    assert await loaded_in_the_next(launcher, "sand", "reef", "kelp", "harmful") == ["sand"]


async def test_an_import_that_hangs_is_given_up(
    launcher: LocalLauncher, installed: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(succession, "IMPORT_DEADLINE_S", 0.3)
    monkeypatch.setattr(succession, "WAIT_S", (30.0, 30.0))
    installed(hanging="import signal\nwhile True: signal.pause()", kelp="")
    await launcher.open(OBEYING, b"")
    launcher.learn(["hanging", "kelp"], 10.0)
    assert "hanging" not in await loaded_in_the_next(launcher, "hanging", "kelp")


async def test_a_successor_that_is_killed_takes_its_workers_and_is_replaced_by_the_warm_parent(
    launcher: LocalLauncher, kelp: None
) -> None:
    await launcher.open(OBEYING, b"")
    launcher.learn(["kelp"], TOOK_S)
    worker, heard = start(launcher)
    os.kill((await ask(worker, heard, "tell"))["parent"], signal.SIGKILL)
    assert await heard.exit() == "was lost together with the process that started it"
    assert await loaded_in_the_next(launcher, "kelp") == []


async def test_workers_that_wait_outlive_the_warm_parent(
    launcher: LocalLauncher, installed: Write, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    os.mkfifo(begun)
    installed(hanging=f"import signal\nopen({str(begun)!r}, 'w').close()\nsignal.pause()")
    await launcher.open(OBEYING, b"")
    launcher.learn(["hanging"], 10.0)
    worker, heard = start(launcher)
    await asyncio.get_running_loop().run_in_executor(None, begun.read_text)
    os.kill(warm_parent().pid, signal.SIGKILL)
    assert await ask(worker, heard, "echo", "alive") == "alive"


async def test_closing_waits_for_no_import(launcher: LocalLauncher, installed: Write) -> None:
    installed(hanging="import signal\nsignal.signal(15, lambda *_: 0)\nwhile True: signal.pause()")
    await launcher.open(OBEYING, b"")
    launcher.learn(["hanging"], 30.0)
    _, heard = start(launcher)
    async with asyncio.timeout(20):
        await launcher.close()
    assert heard.has_exited
