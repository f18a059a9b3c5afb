"""Machines without a common file system: the user's code and objects travel, and only a bucket is
shared."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from holdfast.runtime import objects
from tests.rig import ROOT
from tests.rig.bench import Bench
from tests.rig.nodes.machines import Machines, machines, missing
from tests.rig.script import LONGEST_S
from tests.rig.storage.bucket import Bucket
from tests.rig.storage.proxy import Proxy
from tests.rig.storage.s3_server import S3Server

pytestmark = [pytest.mark.process, pytest.mark.server]

OBJECT_BYTES = 12_000_000
LARGE_BYTES = 11_000_000
SCRIPT = f"""
import json, multiprocessing, os, socket, sys
from pathlib import Path
import numpy as np
import holdfast
from holdfast import tune
import kelp               # a module next to the script
from fronds import shape  # a package next to it, with a file of its own

class Model:
    def __init__(self, rate):
        self.rate = rate

def wait_for_the_test(address):
    try:
        with socket.create_connection(address) as gate:
            gate.recv(1)
    except ConnectionRefusedError:
        pass  # it is open

def inodes_of_objects():
    "The copies of objects that this process has mapped."
    lines = Path("/proc/self/maps").read_text().splitlines()
    return sorted({{line.split()[4] for line in lines if "/objects/" in line}})

def doubled(rate):
    return 2 * rate

def by_a_child(rate):
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.map(doubled, [rate])[0]

def train(config, weights, large):
    import deep           # only in the working_dir
    wait_for_the_test(config["gate"])
    array = holdfast.get(weights)
    report = {{
        "host": socket.gethostname(),
        "model": Model(config["rate"]).rate,
        "kelp": kelp.grow(config["rate"]),
        "shape": shape.text(),
        "deep": deep.text(),
        "sum": int(array.sum()),
        "copied": bool(array.flags.writeable),
        "large": int(large.sum()),
        "inodes": " ".join(inodes_of_objects()),
        "doubled": by_a_child(config["rate"]),
        "argv": sys.argv[1:3],
        "script_is_here": os.path.exists(config["script"]),
    }}
    os.mkdir("model")
    Path("model/weights.txt").write_text("saved")
    tune.report(report, checkpoint=tune.Checkpoint.from_directory("model"))

if __name__ == "__main__":
    holdfast.init(runtime_env={{"working_dir": sys.argv[2]}})
    weights = holdfast.put(np.random.default_rng(1).bytes({OBJECT_BYTES}))
    array = holdfast.put(np.frombuffer(holdfast.get(weights), dtype=np.uint8))
    large = np.ones({LARGE_BYTES}, dtype=np.uint8)
    bound = tune.with_parameters(train, weights=array, large=large)
    results = tune.Tuner(
        tune.with_resources(bound, {{"cpu": 1}}),
        param_space={{"rate": tune.grid_search([1, 2, 3, 4]), "script": __file__,
                     "gate": (sys.argv[3], int(sys.argv[4]))}},
        run_config=tune.RunConfig(storage_path=sys.argv[1], name="run"),
    ).fit()
    print("FOUND", json.dumps([result.metrics for result in results]))
"""


class Hosts:
    """Two machines that share nothing, and a bucket that they reach."""

    def __init__(self, bench: Bench, nodes: Machines, bucket: Bucket) -> None:
        self.bench, self.nodes, self.bucket = bench, nodes, bucket

    def use(self, **query: object) -> None:
        python = f"env PYTHONPATH={ROOT} {sys.executable}"
        given = {"cpus_per_node": 1, "python": python, "ssh": " ".join(self.nodes.ssh), **query}
        self.bench.environ["HOLDFAST_CLUSTER"] = f"ssh://node1,node2?{urlencode(given)}"


@pytest.fixture
def hosts(
    bench: Bench, moto: S3Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Hosts]:
    if why := missing():
        pytest.skip(why)
    with machines(2, tmp_path_factory.mktemp("machines")) as nodes:
        proxy = Proxy(moto.endpoint, host=nodes.address)
        bucket = Bucket(moto, bench.folder.name, proxy)
        bench.use(bucket, machine="first")
        yield Hosts(bench, nodes, bucket)
        nodes.wait_until_idle()
        proxy.close()


@pytest.fixture
def project(bench: Bench) -> Path:
    """The folder of the script, with its modules and a working_dir that has too much in it."""
    made = bench.folder / "project"
    files = {
        "script.py": SCRIPT,
        "kelp.py": "def grow(rate):\n    return f'grown {rate}'\n",
        "fronds/__init__.py": "",
        "fronds/shape.py": "from pathlib import Path\n\ndef text():\n"
        "    return Path(__file__).with_name('shape.txt').read_text()\n",
        "fronds/shape.txt": "long",
        "work/deep.py": "def text():\n    return 'dark'\n",
        "work/.git/HEAD": "ref",
    }
    for name, text in files.items():
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text(text)
    (made / "work" / "out").symlink_to("/etc/passwd")
    return made


def found(stdout: str) -> list[dict[str, Any]]:
    (line,) = [line for line in stdout.splitlines() if line.startswith("FOUND ")]
    told: list[dict[str, Any]] = json.loads(line.removeprefix("FOUND "))
    return told


def test_the_users_code_and_objects_reach_machines_that_share_no_file_system(
    hosts: Hosts, project: Path
) -> None:
    hosts.use(nodes="1-2")
    # Not in memory, which the machines of a test share.
    hosts.bench.environ[objects.FOLDER] = str(hosts.bench.folder / "put")
    before = [machine.received_bytes() for machine in hosts.nodes.all]
    storage = str(hosts.bench.options["storage"])
    with socket.create_server((hosts.nodes.address, 0)) as gate:
        place = hosts.nodes.address, str(gate.getsockname()[1])
        script = hosts.bench.run(project / "script.py", storage, str(project / "work"), *place)
        gate.settimeout(LONGEST_S)
        # The second machine joins later, because trials wait.
        with gate.accept()[0], gate.accept()[0]:
            pass
    script.succeeds()
    # On a busy machine an agent may be lost, and its successor gets everything again.
    losses = " is lost: ", "ended before it joined", "was lost before it was ready"
    again = sum(script.stderr.count(loss) for loss in losses)
    told = found(script.stdout)
    for rate, metrics in enumerate(told, 1):
        assert metrics["model"] == rate
        code = metrics["kelp"], metrics["shape"], metrics["deep"]
        assert code == (f"grown {rate}", "long", "dark")
        assert metrics["doubled"] == 2 * rate
        assert metrics["argv"] == [storage, str(project / "work")]
        assert not metrics["script_is_here"]
        assert not metrics["copied"]
        assert metrics["large"] == LARGE_BYTES
    assert {metrics["host"] for metrics in told} == {"node1", "node2"}
    assert len({metrics["sum"] for metrics in told}) == 1
    for machine, was in zip(hosts.nodes.all, before, strict=True):
        (inodes,) = {one["inodes"] for one in told if one["host"] == machine.name}
        assert len(inodes.split()) == 2
        # TCP sends some of it again if this machine is busy.
        received = machine.received_bytes() - was
        sent = OBJECT_BYTES + LARGE_BYTES
        assert sent < received < (2 + again) * sent, script.stderr
    assert "sending your modules script.py, fronds, kelp.py to each node: 5 files" in script.stderr
    assert (
        "work to each node: 1 file, 30 bytes. Left out: .git. Not sent: out (a link that"
        in script.stderr
    )
    assert "sending objects to each node: 2, 23.0 MB" in script.stderr
    copy = hosts.bucket.download(hosts.bench.folder / "bucket")
    assert len(list(copy.glob("train_*/checkpoint_000000/weights.txt"))) == 4
