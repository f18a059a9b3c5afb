"""The command about a run whose trials write on nodes: what is in storage, and what is not yet."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from holdfast.cli import main
from tests.rig.bench import Bench
from tests.rig.storage.bucket import Bucket
from tests.rig.storage.proxy import Proxy
from tests.rig.storage.s3_server import S3Server

pytestmark = [pytest.mark.process, pytest.mark.server, pytest.mark.rest]

CLI = "from holdfast.cli import main\nimport sys\nsys.exit(main())\n"


@pytest.fixture
def bucket(moto: S3Server, bench: Bench, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    made = Bucket(moto, bench.folder.name, proxy)
    bench.use(made, machine="first")
    for name, value in bench.environ.items():
        monkeypatch.setenv(name, value)
    return made


def run_in(bucket: Bucket) -> str:
    """The experiment, without the proxy."""
    base, _, query = bucket.uri.partition("?")
    return f"{base}/run?{query}"


def told(capsys: pytest.CaptureFixture[str], words: Sequence[str], code: int = 0) -> Any:
    assert main([*words, "--json"]) == code
    return json.loads(capsys.readouterr().out)


@pytest.mark.nightly
def test_the_output_of_a_trial_on_a_node_is_read_from_storage(
    bench: Bench, bucket: Bucket, capsys: pytest.CaptureFixture[str]
) -> None:
    script, gate = bench.held_in(3, prints=True)
    bucket.wait_for_committed(4)
    run = run_in(bucket)
    reader = bench.run(bench.write(CLI, "cli.py"), "logs", run, "0", "-f", "--interval", "0.1")
    reader.said("epoch 2 of attempt 1", stream="stdout")
    assert main(["logs", run, "0"]) == 0
    shown = capsys.readouterr()
    assert shown.out == "epoch 1 of attempt 1\nepoch 2 of attempt 1\n"
    assert "runs on node " in shown.err
    assert "which sent this output last " in shown.err
    here = str(bench.folder / "first" / "run")
    assert main(["logs", here, "0"]) == 2
    assert "pass the URI of the experiment there" in capsys.readouterr().err
    gate.open()
    script.succeeds()
    reader.succeeds()
    reader.finish_reading()
    assert reader.stdout.splitlines() == [f"epoch {n} of attempt 1" for n in range(1, 5)]
    assert "which sends its output every 0.2 s" in reader.stderr


def test_what_only_a_node_has_is_neither_damaged_nor_whole(
    bench: Bench, bucket: Bucket, proxy: Proxy, capsys: pytest.CaptureFixture[str]
) -> None:
    script, gate = bench.held_in(3)
    bucket.wait_for_committed(4)
    proxy.break_off()
    gate.open()
    for trial in range(2):
        script.wait_for(f"reported {trial} 4")
    verify = ["doctor", "verify", run_in(bucket)]
    live = told(capsys, verify)
    kinds = [found["kind"] for found in live["findings"]]
    assert (live["sound"], kinds.count("checkpoint-on-node")) == (True, 4)
    script.dies()
    proxy.mend()
    dead = told(capsys, verify, 1)
    lost = [found["what"] for found in dead["findings"] if found["severity"] == "error"]
    assert len(lost) == 4
    assert all("was lost with the run on node" in what for what in lost)
    bench.restore().succeeds()
    assert told(capsys, verify)["sound"]
