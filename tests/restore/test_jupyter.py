"""Interrupting the kernel of a notebook is a Ctrl-C."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from jupyter_client.manager import KernelManager

from tests.rig.workers.processes import PATIENCE_S

pytestmark = pytest.mark.process

DEFINE = """
import time
from pathlib import Path
from holdfast import tune

def train(config):
    checkpoint = tune.get_checkpoint()
    start = int(Path(checkpoint.path, "epoch").read_text()) if checkpoint else 0
    for epoch in range(start + 1, 4 if start else 10**9):
        folder = tune.staging_directory()
        Path(folder, "epoch").write_text(str(epoch))
        tune.report({"epoch": epoch, "start": start}, checkpoint=tune.Checkpoint(folder))
        if epoch == 2:
            print("at two")
            time.sleep(3600)
"""

PRINTING = """
from holdfast import tune

def train(config):
    for line in range(500):
        print("line", line)
    tune.report({"epoch": 1})
"""


class Notebook:
    """A kernel to which a test connects through sockets of the file system.

    `outputs` counts the outputs below its cells.
    """

    def __init__(self, folder: Path) -> None:
        self._manager = KernelManager(
            kernel_name="python3", transport="ipc", connection_file=str(folder / "kernel.json")
        )
        self._manager.start_kernel(cwd=str(folder))
        self._client = self._manager.client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=PATIENCE_S)
        self.outputs = 0

    def run(self, code: str, interrupt_after: str = "") -> str:
        """The output of a cell, which is interrupted when it has shown this text."""
        asked = self._client.execute(code)
        shown = ""
        while True:
            message: dict[str, Any] = self._client.get_iopub_msg(timeout=PATIENCE_S)
            if message["parent_header"].get("msg_id") != asked:
                continue
            content = message["content"]
            # An updated output is not another one.
            self.outputs += message["msg_type"] in ("stream", "display_data")
            shown += f"{content.get('text', '')}{content.get('ename', '')}"
            shown += str(content.get("data", {}).get("text/html", ""))
            if interrupt_after and interrupt_after in shown:
                interrupt_after = ""
                self._manager.interrupt_kernel()
            if content.get("execution_state") == "idle":
                return shown

    def close(self) -> None:
        self._client.stop_channels()
        self._manager.shutdown_kernel()


@pytest.fixture
def notebook(tmp_path: Path) -> Iterator[Notebook]:
    us = psutil.Process()
    before = us.children()
    opened = Notebook(tmp_path)
    ours = [child for child in us.children() if child not in before]
    assert ours
    yield opened
    opened.close()
    _, alive = psutil.wait_procs(ours, timeout=PATIENCE_S)
    assert not alive


def test_an_interrupted_cell_can_be_resumed_in_the_next(
    notebook: Notebook, tmp_path: Path
) -> None:
    notebook.run(DEFINE)
    where = f"tune.RunConfig(storage_path={str(tmp_path)!r}, name='run')"
    shown = notebook.run(f"tune.Tuner(train, run_config={where}).fit()", "at two")
    assert "Interrupted: trials have" in shown
    assert shown.endswith("KeyboardInterrupt")
    command = next(
        line.partition("To resume: ")[2] for line in shown.splitlines() if "To resume: " in line
    )
    shown = notebook.run(f"print({command.replace('...', 'train')}[0].metrics)")
    assert "'epoch': 3, 'start': 2" in shown


def test_a_notebook_has_one_output_for_a_run_and_what_its_trials_print(
    notebook: Notebook, tmp_path: Path
) -> None:
    notebook.run(PRINTING)
    where = f"tune.RunConfig(storage_path={str(tmp_path)!r}, name='run')"
    shown = notebook.run(f"results = tune.Tuner(train, run_config={where}).fit()")
    assert notebook.outputs == 1
    assert "1 trial in " in shown
    assert ") line 499</pre>" in shown
