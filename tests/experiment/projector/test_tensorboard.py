import contextlib
import math
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.plugin_event_accumulator import (
    EventAccumulator as PluginEventAccumulator,
)
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
from tensorboard.context import RequestContext
from tensorboard.plugins import base_plugin
from tensorboard.plugins.hparams import api_pb2, metadata
from tensorboard.plugins.hparams.backend_context import Context

from holdfast.experiment.projector import tensorboard

START, END = "_hparams_/session_start_info", "_hparams_/session_end_info"


def write(folder: Path, *parts: bytes, name: str = "events.out.tfevents.17.here") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(b"".join((tensorboard.opening(17.0), *parts)))
    return folder


def read(folder: Path) -> EventAccumulator:
    loaded = EventAccumulator(str(folder))
    loaded.Reload()
    return loaded


def content(folder: Path, tag: str) -> bytes:
    found: bytes = read(folder).SummaryMetadata(tag).plugin_data.content
    return found


def test_a_real_tensorboard_reads_each_number_at_its_step(tmp_path: Path) -> None:
    rows = [{"loss": 0.5, "val": {"acc": 1}}, {"loss": 0.25, "val": {"acc": 2}}]
    parts = [tensorboard.scalars(row, i + 1, 17.5 + i) for i, row in enumerate(rows)]
    loaded = read(write(tmp_path, *parts))
    assert loaded.Tags()["scalars"] == ["ray/tune/loss", "ray/tune/val/acc"]
    events = loaded.Scalars("ray/tune/loss")
    assert [(e.wall_time, e.step, e.value) for e in events] == [(17.5, 1, 0.5), (18.5, 2, 0.25)]
    assert [e.value for e in loaded.Scalars("ray/tune/val/acc")] == [1.0, 2.0]


def test_values_that_are_not_curves_are_left_out(tmp_path: Path) -> None:
    row = {
        "flag": True, "np_flag": np.True_, "text": "x", "none": None, "list": [1.0],
        "config": {"lr": 1.0}, "pid": 1, "timestamp": 2, "time_total_s": 3.0,
        "training_iteration": 4, "loss": 1.0,
    }  # fmt: skip
    loaded = read(write(tmp_path, tensorboard.scalars(row, 1, 17.0)))
    assert loaded.Tags()["scalars"] == ["ray/tune/loss"]


def test_numbers_of_numpy_nan_and_infinity_are_charted(tmp_path: Path) -> None:
    row = {"a": np.float32(0.5), "b": np.int64(3), "nan": math.nan, "inf": -math.inf}
    loaded = read(write(tmp_path, tensorboard.scalars(row, 1, 17.0)))
    values = {tag[9:]: loaded.Scalars(tag)[0].value for tag in loaded.Tags()["scalars"]}
    assert math.isnan(values.pop("nan"))
    assert values == {"a": 0.5, "b": 3.0, "inf": -math.inf}


@pytest.mark.parametrize(
    ("step", "name", "value", "shown"),
    [
        (0, "loss", 0.0, 0.0),
        (1, "a" * 106, -0.5, -0.5),  # messages whose lengths take one byte and two
        (127, "a" * 107, 3, 3.0),
        (128, "a" * 200, 2**63, float(2**63)),
        (16_384, "ä" * 20_000, 0.1, float(np.float32(0.1))),
        (2**40, "loss", 1e300, math.inf),
        (2**40, "loss", -1e300, -math.inf),
    ],
)
def test_the_message_classes_of_tensorboard_read_each_event(
    step: int, name: str, value: float, shown: float
) -> None:
    row = {name: value, "val": {name: 0.25}}
    (event,) = events(tensorboard.scalars(row, step, 17.25))
    assert (event.wall_time, event.step) == (17.25, step)
    assert [(one.tag, one.simple_value) for one in event.summary.value] == [
        (f"ray/tune/{name}", shown),
        (f"ray/tune/val/{name}", 0.25),
    ]
    assert event == type(event).FromString(event.SerializeToString())


def events(data: bytes) -> list[Any]:
    """The events of an event file, whose checksums are right."""
    from tensorboardX.proto.event_pb2 import Event

    found, offset = [], 0
    while offset < len(data):
        content, offset = tensorboard._framed(data, offset)
        found.append(Event.FromString(content))
    return found


def test_a_tag_has_only_characters_that_tensorboard_takes(tmp_path: Path) -> None:
    loaded = read(write(tmp_path, tensorboard.scalars({"top-1 acc (%)": 1}, 1, 17.0)))
    assert loaded.Tags()["scalars"] == ["ray/tune/top-1_acc____"]


def test_the_config_is_read_as_hparams(tmp_path: Path) -> None:
    config = {
        "lr": 0.5, "net": {"width": 3}, "kind": "a", "bias": True, "seed": None,
        "sizes": [1, 2], "bound": math.inf,
    }  # fmt: skip
    write(tmp_path, tensorboard.session_start(config, 17.0))
    info = metadata.parse_session_start_info_plugin_data(content(tmp_path, START))
    values = {key: getattr(v, v.WhichOneof("kind")) for key, v in info.hparams.items()}
    assert values == {
        "lr": 0.5, "net/width": 3.0, "kind": "a", "bias": True,
        "sizes/0": 1.0, "sizes/1": 2.0, "bound": "inf",
    }  # fmt: skip
    assert info.start_time_secs == 17.0


@pytest.mark.parametrize(
    ("succeeded", "status"), [(True, api_pb2.STATUS_SUCCESS), (False, api_pb2.STATUS_FAILURE)]
)
def test_the_end_says_whether_the_trial_did_well(
    tmp_path: Path, succeeded: bool, status: int
) -> None:
    write(tmp_path, tensorboard.session_end(succeeded=succeeded, wall_time=19.0))
    info = metadata.parse_session_end_info_plugin_data(content(tmp_path, END))
    assert (info.status, info.end_time_secs) == (status, 19.0)


def hparams_page(root: Path) -> api_pb2.Experiment:
    """What the hparams plugin collects from all trials below `root`."""
    multiplexer = EventMultiplexer()
    multiplexer.AddRunsFromDirectory(str(root))
    multiplexer.Reload()
    provider = MultiplexerDataProvider(multiplexer, str(root))
    context = Context(base_plugin.TBContext(data_provider=provider))
    request = RequestContext()
    return context.experiment_from_metadata(
        request, "", True, context.hparams_metadata(request, ""), []
    )


def trial(root: Path, name: str, config: Mapping[str, Any], row: Mapping[str, Any]) -> None:
    start, rows = tensorboard.session_start(config, 17.0), tensorboard.scalars(row, 1, 18.0)
    write(root / name, start, rows, tensorboard.session_end(succeeded=True, wall_time=19.0))


def test_the_hparams_page_has_the_columns_of_all_trials(tmp_path: Path) -> None:
    trial(tmp_path, "one", {"lr": 0.5}, {"loss": 1.0})
    trial(tmp_path, "two", {"lr": 0.25, "momentum": 0.9}, {"loss": 1.0, "acc": 0.5})
    page = hparams_page(tmp_path)
    assert sorted(info.name for info in page.hparam_infos) == ["lr", "momentum"]
    assert {info.name.tag for info in page.metric_infos} == {"ray/tune/loss", "ray/tune/acc"}
    [lr] = [info for info in page.hparam_infos if info.name == "lr"]
    assert (lr.domain_interval.min_value, lr.domain_interval.max_value) == (0.25, 0.5)


@pytest.mark.parametrize("accumulator", [EventAccumulator, PluginEventAccumulator])
def test_a_running_reader_forgets_what_a_newer_file_does_not_have(
    tmp_path: Path, accumulator: Any
) -> None:
    old = [tensorboard.scalars({"loss": step}, step, 17.0) for step in (1, 2, 3)]
    write(tmp_path, *old)
    loaded = accumulator(str(tmp_path))
    loaded.Reload()
    write(tmp_path, *old[:1], name="events.out.tfevents.18.here")
    (tmp_path / "events.out.tfevents.17.here").write_bytes(b"")
    loaded.Reload()
    events = loaded.Scalars if accumulator is EventAccumulator else loaded.Tensors
    assert [event.step for event in events("ray/tune/loss")] == [1]


def test_no_library_of_tensorboard_is_imported() -> None:
    code = (
        "import sys; from holdfast.experiment.projector import tensorboard as t\n"
        "data = t.opening(1.0) + t.session_start({'lr': 1}, 1.0)\n"
        "assert t.charted_steps(data + t.scalars({'loss': 1}, 7, 1.0)) == [7]\n"
        "assert not {'google.protobuf', 'tensorboardX', 'numpy', 'crc32c'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@settings(max_examples=200)
@given(st.binary(max_size=80))
def test_any_bytes_in_a_record_are_steps_or_a_value_error(content: bytes) -> None:
    data = tensorboard._framed_record(content)
    with contextlib.suppress(ValueError):
        assert len(tensorboard.charted_steps(data)) <= 1
    with contextlib.suppress(ValueError):
        assert tensorboard.end_of_step(data, 5) in {0, len(data)}
