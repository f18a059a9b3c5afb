"""Reads the data that arrived in a tracker, with the tracker's own reader."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from struct import unpack_from
from typing import Any
from zipfile import ZipFile

from holdfast.dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Logged:
    """One number in a tracker."""

    name: str
    step: int
    value: float


def steps(logged: list[Logged], name: str) -> list[int]:
    """The steps of one metric, as often and in the order as they were logged."""
    return [found.step for found in logged if found.name == name]


Run = tuple[str, list[Logged]]


def wandb_offline(folder: Path) -> list[Run]:
    """The offline runs under `folder`, each by its id, oldest first; a torn end is left out."""
    files = sorted(folder.glob("**/offline-run-*/run-*.wandb"))
    return [(file.stem.removeprefix("run-"), list(_wandb_run(file))) for file in files]


def _wandb_run(file: Path) -> Iterator[Logged]:
    for record in _wandb_records(file):
        if record.WhichOneof("record_type") == "history":
            row = {
                "/".join(item.nested_key) or item.key: json.loads(item.value_json)
                for item in record.history.item
            }
            step = int(row.get("trainer/global_step", row["_step"]))  # Lightning counts its own
            for name, value in row.items():
                if isinstance(value, int | float) and not name.startswith("_"):
                    yield Logged(name=name, step=step, value=float(value))


def _wandb_records(file: Path) -> Iterator[Any]:
    from wandb.proto import wandb_internal_pb2

    for data in _framed(file.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        yield record


_BLOCK_BYTES = 32768
_HEADER_BYTES = 7
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


def _framed(content: bytes) -> Iterator[bytes]:
    """The records of a W&B file: a log like LevelDB's behind seven bytes. 0.31 brings no reader.

    https://github.com/google/leveldb/blob/main/doc/log_format.md
    """
    at = _HEADER_BYTES
    parts = b""
    while at + _HEADER_BYTES <= len(content):
        room = _BLOCK_BYTES - at % _BLOCK_BYTES
        if room < _HEADER_BYTES:
            at += room
            continue
        size, kind = unpack_from("<HB", content, at + 4)
        at += _HEADER_BYTES
        if kind not in (_WHOLE, _FIRST, _MIDDLE, _LAST) or at + size > len(content):
            return  # torn
        parts += content[at : at + size]
        at += size
        if kind in (_WHOLE, _LAST):
            yield parts
            parts = b""


def mlflow_runs(tracking_uri: str, experiment_name: str) -> list[Any]:
    """The runs of an experiment, as MLflow's client gives them."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri)
    experiment = client.get_experiment_by_name(experiment_name)
    assert experiment is not None
    return list(client.search_runs([experiment.experiment_id]))


def mlflow_logged(tracking_uri: str, experiment_name: str, name: str) -> list[Logged]:
    """The history of one metric in all runs of an experiment."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri)
    return [
        Logged(name=name, step=found.step, value=found.value)
        for run in mlflow_runs(tracking_uri, experiment_name)
        for found in client.get_metric_history(run.info.run_id, name)
    ]


def comet_offline(folder: Path) -> list[Run]:
    """The offline archives under `folder`, each by its experiment's key, oldest first.

    One of a process that was killed is empty.
    """
    archives = sorted(folder.glob("**/*.zip"), key=lambda path: path.stat().st_mtime_ns)
    return [_comet_archive(archive) for archive in archives]


def _comet_archive(archive: Path) -> Run:
    with ZipFile(archive) as content:
        if not content.namelist():
            return archive.name.partition("-")[0], []
        key = json.loads(content.read("experiment.json"))["offline_id"]
        messages = [json.loads(line) for line in content.read("messages.json").splitlines()]
    metrics = [message["payload"].get("metric") for message in messages]
    return key, [
        Logged(
            name=metric["metricName"],
            step=int(metric["step"]),
            value=float(metric["metricValue"]),
        )
        for metric in metrics
        if metric and metric["step"] is not None
    ]


def tensorboard(folder: Path) -> list[Logged]:
    """What the event files under `folder` show: what was purged is left out."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folders = sorted({path.parent for path in folder.glob("**/events.out.tfevents.*")})
    found = []
    for each in folders:
        events = EventAccumulator(str(each), size_guidance={"scalars": 0}).Reload()
        for name in events.Tags()["scalars"]:
            found += [
                Logged(name=name, step=scalar.step, value=scalar.value)
                for scalar in events.Scalars(name)
            ]
    return found
