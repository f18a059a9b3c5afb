"""No secret is in an argument, in an environment, or in a file that stays or that others can read.

Planted are: credentials of storage in the script's environment, others in the URI of the storage,
a variable of `runtime_env`, and the tokens of agents; their private keys are known by their frame.

The rule for environments: the script has its own one, and so have its services on its machine and
`ssh`, which may need it for a ProxyCommand. Workers, the parent that they are forked from, and the
keeper of a node get `env_vars` and the variables of storage, which are meant for them. No other
process has any of them: no command of Slurm's, no agent, no shell or daemon on a node.
"""

from __future__ import annotations

import json
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.rig import planted
from tests.rig.bench import Bench
from tests.rig.nodes.slurm import SlurmCluster, wait_until
from tests.rig.nodes.slurm_rigs import allocated, jobs_of
from tests.rig.nodes.ssh_runs import ssh_nodes
from tests.rig.script import Gate, UserScript
from tests.rig.storage.bucket import Bucket
from tests.rig.storage.proxy import Proxy
from tests.rig.storage.s3_server import S3Server

pytestmark = [pytest.mark.process, pytest.mark.server, pytest.mark.rest]

SCRIPT = Path(__file__).parent / "secret_script.py"
# Processes that may have the variables of the script's environment, or those of workers.
MAY_HAVE = ("secret_script.py", "runtime.warm", "runtime.service_process", "holdfast: ", "ssh -F ")


class Planted:
    """A script with secrets, which are to be found nowhere. `folders` are looked through."""

    def __init__(self, bench: Bench, bucket: Bucket, address: str) -> None:
        mark = secrets.token_hex(8)
        self.bench, self.bucket = bench, bucket
        self.given = bench.folder / "given"
        self.folders = [bench.folder, Path(tempfile.gettempdir())]
        in_environ = {"AWS_SECRET_ACCESS_KEY": f"{mark}-environ", "AWS_SESSION_TOKEN": mark + "-t"}
        bench.environ |= {"AWS_ACCESS_KEY_ID": "moto", **in_environ}
        bench.environ["RAY_AIR_LOCAL_CACHE_DIR"] = str(bench.folder / "local")
        token = f"{mark}-of-an-agent".ljust(32, "-")
        variable, of_uri = f"{mark}-variable", f"{mark}-uri"
        uri = f"{bucket.storage_path}&access_key=moto&secret_key={quote(of_uri)}"
        # Where a process that they are meant for may have them.
        self.of_environments = {
            "the variable": variable.encode(),
            **{name: text.encode() for name, text in in_environ.items()},
        }
        self.others = {
            "the URI's key": of_uri.encode(),
            "the token": token.encode(),
            "a private key": b"PRIVATE" + b" KEY-----",
        }
        given = {"storage": uri, "env_vars": {"TRACKER_TOKEN": variable}, "token": token}
        self.variable = variable
        self.given.touch(mode=0o600)
        self.given.write_text(json.dumps(given))
        self._gate: Gate | None = None

    @property
    def all(self) -> dict[str, bytes]:
        return {**self.of_environments, **self.others}

    def start(self) -> UserScript:
        """Start the script, and wait until both trials run."""
        self._gate = self.bench.gate("looked")
        script = self.bench.run(SCRIPT, str(self.given))
        for _ in range(2):
            assert script.wait_for("holds") == f"holds {self.variable}"
        # Only the script reads this.
        self.given.unlink()
        return script

    def found(self) -> list[str]:
        """Where a secret is that should not be there, while the script runs."""
        others = planted.in_environments(self.others)
        theirs = planted.in_environments(
            self.of_environments, lambda command: any(part in command for part in MAY_HAVE)
        )
        return [
            *planted.in_arguments(self.all),
            *others,
            *theirs,
            *planted.readable(self.all, self.folders),
        ]

    def end(self, script: UserScript) -> list[str]:
        """Let the script end. Returns where a secret is afterwards."""
        assert self._gate is not None
        self._gate.open()
        script.succeeds()
        assert script.left() == []
        self.bucket.download(self.bench.folder / "bucket")
        assert list((self.bench.folder / "bucket").rglob("weights"))
        assert (self.bench.folder / "local" / "run" / "tuner.pkl").exists()
        return planted.in_files(self.all, self.folders)


def planted_at(bench: Bench, moto: S3Server, address: str) -> Iterator[Planted]:
    proxy = Proxy(moto.endpoint, host=address)
    yield Planted(bench, Bucket(moto, bench.folder.name, proxy), address)
    proxy.close()


def test_machines_that_ssh_reaches_show_no_secret(
    bench: Bench, moto: S3Server, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with ssh_nodes(bench, tmp_path_factory.mktemp("machines")) as nodes:
        for secret in planted_at(bench, moto, nodes.address):
            secret.folders += [machine.disk for machine in nodes.all]
            script = secret.start()
            assert secret.found() == []
            assert secret.end(script) == []
        nodes.wait_until_idle()


@pytest.mark.nightly
def test_jobs_of_slurm_show_no_secret_also_while_they_wait(
    bench: Bench, moto: S3Server, slurm: SlurmCluster
) -> None:
    with jobs_of(bench, slurm):
        for secret in planted_at(bench, moto, slurm.address):
            secret.folders.append(slurm.folder)
            # The invitations lie in the folder until the jobs begin.
            slurm.run("scontrol", "update", "PartitionName=main", "State=DOWN")
            gate = bench.gate("looked")
            script = bench.run(SCRIPT, str(secret.given))
            script.said("nodes wait in Slurm's queue")
            waiting = planted.in_files(secret.all, [bench.folder / "shared"])
            assert len([one for one in waiting if ".invitation" in one]) == len(waiting) == 4
            assert secret.found() == []
            slurm.run("scontrol", "update", "PartitionName=main", "State=UP")
            for _ in range(2):
                script.wait_for("holds")
            secret.given.unlink()
            assert secret.found() == []
            secret._gate = gate
            assert secret.end(script) == []
            wait_until(lambda: not slurm.run("squeue", "--noheader"))


@pytest.mark.nightly
def test_an_allocation_of_slurm_shows_no_secret(
    bench: Bench, moto: S3Server, slurm: SlurmCluster
) -> None:
    with allocated(slurm, "--nodes=2", "--exclusive") as rig:
        bench.environ |= rig.environ
        bench.environ["HOLDFAST_CLUSTER"] = "auto"
        for secret in planted_at(bench, moto, slurm.address):
            secret.folders.append(slurm.folder)
            script = secret.start()
            assert secret.found() == []
            assert secret.end(script) == []
