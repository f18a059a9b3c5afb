"""Features of public sweep files of W&B, each as a small file: its first command."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.experiment.folder.settings import Settings
from holdfast.sweep.running import open_sweep
from holdfast.trial.errors import InvalidConfig

FIRST = "program: train.py\nmethod: random\nmetric: {name: loss, goal: minimize}\nrun_cap: 1\n"
ONE = "parameters: {lr: {value: 0.1}, big: {value: true}, net: {parameters: {n: {value: 3}}}}\n"
ALL = "--lr=0.1 --big=True --net.n=3"

CASES = {
    # the command
    ONE: f"python HERE/train.py {ALL}",
    f"command: ['${{env}}', '${{interpreter}}', '${{program}}', '${{args}}']\n{ONE}": (
        f"/usr/bin/env python HERE/train.py {ALL}"
    ),
    f"command: ['${{env}}', python3, '${{program}}', --config, a.yaml, '${{args}}']\n{ONE}": (
        f"/usr/bin/env python3 HERE/train.py --config a.yaml {ALL}"
    ),
    f"command: ['${{env}}', python, -m, scripts.train, '+x=y', '${{args_no_hyphens}}']\n{ONE}": (
        "/usr/bin/env python -m scripts.train +x=y lr=0.1 big=True net.n=3"
    ),
    f"command: [poetry, run, python, '${{program}}', '${{args_no_boolean_flags}}']\n{ONE}": (
        "poetry run python HERE/train.py --lr=0.1 --big --net.n=3"
    ),
    f"command: [python, '${{program}}', '${{args_no_equals}}']\n{ONE}": (
        "python HERE/train.py --lr 0.1 --big True --net.n 3"
    ),
    f"command: [python, '${{program}}', '${{args_append_hydra}}']\n{ONE}": (
        "python HERE/train.py +lr=0.1 +big=True +net.n=3"
    ),
    f"command: [python, '${{program}}', '${{args_override_hydra}}']\n{ONE}": (
        "python HERE/train.py ++lr=0.1 ++big=True ++net.n=3"
    ),
    f"command: [python, '${{program}}', 'hydra.run.dir=${{now:%Y}}', '${{args}}']\n{ONE}": (
        f"python HERE/train.py 'hydra.run.dir=${{now:%Y}}' {ALL}"
    ),
    f"command: [python, '${{program}}']\n{ONE}": "python HERE/train.py",
    f"command: [python, -m, '${{program}}', '${{args}}']\nprogram: pkg.train\n{ONE}": (
        f"python -m pkg.train {ALL}"
    ),
    f"command: ['${{program}}', train, '${{args}}']\nprogram: sh\n{ONE}": f"sh train {ALL}",
    # the parameters
    "parameters: {lr: {min: !!float 1e-5, max: !!float 1e-5, distribution: constant}}\n": (
        "min: does not belong to constant"
    ),
    "parameters: {a.b: {values: [1]}, c: {values: [null]}, d: {values: [[1, 2]]}}\n": (
        "python HERE/train.py --a.b=1 --c=null '--d=[1, 2]'"
    ),
    "parameters: {size: {distribution: q_log_uniform_values, min: 9, max: 17, q: 8}}\n": (
        "python HERE/train.py --size=16"
    ),
    "parameters: {size: {distribution: q_uniform, min: 100, max: 105, q: 10}}\n": (
        "python HERE/train.py --size=100"
    ),
    "parameters: {n: {distribution: int_uniform, min: 4, max: 4}}\n": (
        "python HERE/train.py --n=4"
    ),
    "parameters: {b: {distribution: inv_log_uniform_values, min: 0.9, max: 1}}\n": (
        "Use log_uniform_values for the inverse"
    ),
    "parameters: {x: {values: [1, 2], probabilities: [0.1, 0.9]}}\n": "Repeat a value in values",
    "parameters: {x: {distribution: beta, a: 1, b: 2}}\n": "Use uniform",
    "parameters: {x: {values: }}\n": "must be a list of values, not empty",
    # the rest
    f"project: p\nentity: e\nname: n\ndescription: d\n{ONE}": f"python HERE/train.py {ALL}",
    f"early_terminate: {{type: hyperband, min_iter: 15, eta: 3, s: 2}}\n{ONE}": (
        f"python HERE/train.py {ALL}"
    ),
    f"early_terminate: {{type: hyperband, min_iter: 3, strict: true}}\n{ONE}": (
        "strict: is unknown here"
    ),
    f"method: grid\nrun_cap:\n{ONE}": "run_cap",
    f"controller: {{type: local}}\n{ONE}": "controller: is unknown here",
}


@pytest.mark.parametrize("text", CASES, ids=[text.splitlines()[0] for text in CASES])
def test_a_file_runs_as_with_wandb_or_says_why_not(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.sweep.running.python_of", lambda environ: "python")
    (tmp_path / "train.py").touch()
    named = {line.partition(":")[0] for line in text.splitlines()}
    first = [line for line in FIRST.splitlines() if line.partition(":")[0] not in named]
    (file := tmp_path / "s.yaml").write_text("\n".join([*first, text]))
    try:
        (found,) = open_sweep(file, Settings.read({}), sets=[], given={}).examples(1)
    except InvalidConfig as error:
        found = str(error)
        assert found.startswith("s.yaml:")
        assert CASES[text] in found
    else:
        assert found == CASES[text].replace("HERE", str(tmp_path))
