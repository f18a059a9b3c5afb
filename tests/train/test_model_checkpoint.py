"""A checkpoint of one model lies in a temporary directory that belongs to one process."""

from __future__ import annotations

import subprocess
import sys

import pytest

FORKS = """
import os
from holdfast.train import Checkpoint
from holdfast.train.reporting import ModelCheckpoint

def write(path):
    with open(path, "w") as file:
        file.write("weights")

made = [ModelCheckpoint.saved("model", write), Checkpoint.from_dict({"step": 1})]
paths = [one.path for one in made]
if not (child := os.fork()):
    made.clear()  # as a data loader's process does that collects garbage
    os._exit(0)
os.waitpid(child, 0)
print([os.listdir(path) for path in paths])
made.clear()
print(list(map(os.path.exists, paths)))
"""


@pytest.mark.process
def test_it_goes_with_its_object_and_not_with_that_of_a_forked_child() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKS], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines() == ["[['model'], ['dict_checkpoint.pkl']]", "[False, False]"]
