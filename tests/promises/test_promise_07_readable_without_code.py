"""Promise 7. State is versioned JSON and framed MessagePack, never a pickle of our own classes;
the user's opaque values are pickled each in a field of its own and loaded only when used."""

from __future__ import annotations

import base64
import json
import pickletools
import shutil
import struct
import zlib
from pathlib import Path
from typing import Any

import msgpack
import pytest

from tests.rig import checker
from tests.rig.bench import Bench

pytestmark = pytest.mark.process

MODULE = """
class Model:
    loads = 0
    def __init__(self, name):
        self.name = name
    def __setstate__(self, state):
        print("UNPICKLED")
        self.__dict__.update(state)

def train(config):
    from holdfast import tune
    tune.report({"score": len(config["model"].name)})
"""
SCRIPT = """
import sys
from holdfast import tune
import users_module
if __name__ == "__main__":
    tune.Tuner(users_module.train,
        param_space={"model": tune.sample_from(lambda spec: users_module.Model("four")),
                     "lr": tune.uniform(0, 1)},
        run_config=tune.RunConfig(storage_path=sys.argv[1], name="run", verbose=0)).fit()
"""
READER = """
import sys
from holdfast import tune
analysis = tune.ExperimentAnalysis(sys.argv[1])
print("ROWS", [row["score"] for row in analysis.results.values()])
print("CONFIG", analysis.get_all_configs())
results = tune.load(sys.argv[1])
print("RESULT", results[0].metrics["score"], results[0].config["lr"] > 0)
assert "users_module" not in sys.modules
"""


@pytest.fixture
def run(bench: Bench) -> Bench:
    bench.write(MODULE, "users_module.py")
    bench.run(bench.write(SCRIPT), str(bench.storage)).succeeds()
    (bench.folder / "users_module.py").unlink()
    shutil.rmtree(bench.folder / "__pycache__", ignore_errors=True)
    return bench


def test_results_are_read_where_the_users_module_is_gone(run: Bench) -> None:
    script = run.run(run.write(READER, "reader.py"), str(run.root)).succeeds()
    assert "ROWS [4]" in script.stdout
    assert "RESULT 4 True" in script.stdout
    assert "UNPICKLED" not in script.stdout


def pickles(value: Any) -> list[bytes]:
    """Everything in a record that is not a plain value."""
    if isinstance(value, bytes):
        return [value]
    if isinstance(value, dict) and value.get("__holdfast__") == "opaque":
        return [base64.b64decode(value["base64"])]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [found for part in parts for found in pickles(part)]


def names_in(pickled: bytes) -> str:
    return " ".join(str(argument) for _, argument, _ in pickletools.genops(pickled))


def test_no_state_file_holds_a_pickle_of_our_own_classes(run: Bench) -> None:
    opaque = [found for record in checker.records(run.root) for found in pickles(record)]
    assert opaque  # the user's Model
    assert all("users_module" in names_in(found) for found in opaque)
    assert not any("holdfast" in names_in(found) for found in opaque)
    for name in ("experiment_state-*.json", "basic-variant-state-*.json"):
        (path,) = run.root.glob(name)
        assert json.loads(path.read_text())["format"] == 1


def test_tuner_pkl_is_plain_data_but_for_what_is_the_users_own(run: Bench) -> None:
    """Written from docs/layout.md alone."""
    data = Path(run.root, "tuner.pkl").read_bytes()
    assert data.startswith(b"HFTUNR\0\2")
    crc, length = struct.unpack_from("<IQ", data, 8)
    body = data[20:]
    assert (crc, length) == (zlib.crc32(body), len(body))
    fields = msgpack.unpackb(body, strict_map_key=False)
    assert "objects" in fields["trainable"]
    assert fields["missing"] == {"plain": []}
    lr = fields["param_space"]["plain"]["lr"]
    assert (lr["class"], lr["kwargs"]["upper"]) == ("Float", 1.0)
