"""Features of public sweep files of W&B, each as a small file: its first command."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.cli import main
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
    f"command: ['${{env}}', CUDA_VISIBLE_DEVICES=1, python, '${{program}}', '${{args}}']\n{ONE}": (
        f"/usr/bin/env CUDA_VISIBLE_DEVICES=1 python HERE/train.py {ALL}"
    ),
    f"command: [torchrun, --nproc_per_node=2, '${{program}}', '${{args}}']\n{ONE}": (
        f"torchrun --nproc_per_node=2 HERE/train.py {ALL}"
    ),
    f"command: [python, '${{program}}', '--logdir logs --fast', '${{args}}']\n{ONE}": (
        f"python HERE/train.py '--logdir logs --fast' {ALL}"
    ),
    f"command: [python, '${{program}}', --n, 4, --other, '', '${{args}}']\n{ONE}": (
        f"python HERE/train.py --n 4 --other '' {ALL}"
    ),
    f"command: [python, '${{program}}', --use_wandb, true, '${{args}}']\n{ONE}": (
        "must be a word, not true. Put it in quotes"
    ),
    f"command: [python, '${{program}}', '--params=${{args}}']\n{ONE}": (
        "${args} becomes several words, so it must be a word of its own"
    ),
    f"command: [python, '${{program}}', --json, '${{args_json_file}}']\n{ONE}": (
        "python HERE/train.py --json '$HOLDFAST_CONFIG'"
    ),
    f"command: [python, '${{program}}', '${{args_json}}']\n{ONE}": (
        """python HERE/train.py '{"lr": 0.1, "big": true, "net": {"n": 3}}'"""
    ),
    f"command: [python, '${{program}}', '--key=${{envvar:NOT_SET_HERE}}']\n{ONE}": (
        "the command has ${envvar:NOT_SET_HERE}, and NOT_SET_HERE is not set here"
    ),
    f"command: |\n  ${{env}} python ${{program}}\n  ${{args}}\n{ONE}": (
        f"/usr/bin/env python HERE/train.py {ALL}"
    ),
    f"program: super agent optimize\n{ONE}": "the program 'super agent optimize' is not a file in",
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
    "parameters: {x: {values: range(3)}}\n": "must be a list of values, not 'range(3)'",
    "parameters: {x: {values: [true]}, y: {value: 'true'}, z: {value: yes}}\n": (
        "python HERE/train.py --x=True --y=true --z=yes"
    ),
    "parameters: {x: {values: [{a: 1, b: two}]}, y: {value: {c: 3}}}\n": (
        "python HERE/train.py --x.a=1 --x.b=two --y.c=3"
    ),
    "parameters: {a-b: {value: 1}, a/b/init_args: {value: 2}}\n": (
        "python HERE/train.py --a-b=1 --a/b/init_args=2"
    ),
    "parameters: {x: {parameters: {y: {parameters: {z: {values: [0.9]}}}}}}\n": (
        "python HERE/train.py --x.y.z=0.9"
    ),
    "parameters: {x: {value: You're 'it'}}\n": (
        """python HERE/train.py '--x=You'"'"'re '"'"'it'"'"''"""
    ),
    "parameters: {x: {value: 1}, 'x': {value: 2}}\n": "'x' is there twice, also in line 5",
    "parameters: {lr: {min: '1e-4', max: 1}}\n": "must be a number, not '1e-4'",
    "parameters: {lr: {min: 0.1, max: 0.5, step: 0.1}}\n": "step: is unknown here",
    "parameters: {n: {distribution: q_log_uniform, min: 2.3, max: 2.4, q: 10}}\n": (
        "python HERE/train.py --n=10"
    ),
    "parameters: {x: {distribution: log_uniform_values, min: 0, max: 1}}\n": "log needs lower > 0",
    "parameters: {x: {distribution: log-uniform, min: 1, max: 2}}\n": "Did you mean 'log_uniform'",
    "parameters: {x: {distribution: categorical, value: 1}}\n": (
        "value: does not belong to categorical, which has values"
    ),
    "parameters: {x: {distribution: q_log_normal, mu: 1}}\n": "compute exp(x) in the script",
    "parameters: {x: {min: 1}}\n": "int_uniform needs max",
    "parameters: {x: &x {value: 1}, y: *x, z: {<<: *x}}\n": (
        "python HERE/train.py --x=1 --y=1 --z=1"
    ),
    "method: grid\nparameters: {n: {min: 3, max: 5}}\n": "python HERE/train.py --n=3",
    "method: grid\nparameters: {n: {min: 5, max: 3}}\n": "5 to 3 is not a grid",
    "method: grid\nparameters: {n: {min: 1, max: 1000000000}}\n": "is not a grid of 1 to 20,000",
    "method: grid\nparameters: {n: {min: 0.1, max: 1}}\n": "uniform has no grid",
    # how the search goes
    f"metric: {{name: loss, goal: minimize, target: 0.1}}\n{ONE}": "target: is not supported. Use",
    f"metric: {{name: loss}}\n{ONE}": "goal is missing: {name: loss, goal: minimize}",
    f"metric: {{name: loss, goal: maximise}}\n{ONE}": "Did you mean 'maximize'?",
    f"metric: {{name: val/loss.min, goal: minimize}}\n{ONE}": f"python HERE/train.py {ALL}",
    f"method: custom\n{ONE}": "must be one of random, grid, bayes, not 'custom'",
    f"early_terminate: {{type: hyperband, max_iter: 27, s: 2}}\n{ONE}": (
        f"python HERE/train.py {ALL}"
    ),
    f"early_terminate: {{type: hyperband}}\n{ONE}": "needs min_iter, or max_iter and s",
    f"early_terminate: {{type: median, min_iter: 3}}\n{ONE}": "must be one of hyperband",
    # the rest
    f"project: p\nentity: e\nname: n\ndescription: d\n{ONE}": f"python HERE/train.py {ALL}",
    f"early_terminate: {{type: hyperband, min_iter: 15, eta: 3, s: 2}}\n{ONE}": (
        f"python HERE/train.py {ALL}"
    ),
    f"early_terminate: {{type: hyperband, min_iter: 3, strict: true}}\n{ONE}": (
        "strict: is not supported. Remove it: eta"
    ),
    f"method: grid\nrun_cap:\n{ONE}": "run_cap",
    f"controller: {{type: local}}\n{ONE}": "controller: is not supported. Remove it",
    f"job: me/project/job-train:latest\n{ONE}": "job: is not supported. Say with command",
    f"image_uri: me/image:1\n{ONE}": "image_uri: is not supported. Say with command",
    f"launch: {{registry: r}}\n{ONE}": "launch: is not supported. Say with cluster",
    f"scheduler: {{num_workers: 8}}\n{ONE}": "scheduler: name is missing",
    f"tags: [a]\n{ONE}": "tags: is unknown here. Known:",
    "parameters:\n\tx: {value: 1}\n": "Indent with spaces",
    f"{ONE}---\nmethod: grid\n": "has 2 documents",
}


COMMANDS = ("python ", "/usr/bin/env ", "poetry ", "torchrun ", "sh ")
# Found when a command is made; other errors have the place in the file.
NO_PLACE = "the command has ${envvar:"


def written(text: str, folder: Path) -> Path:
    (folder / "train.py").touch()
    named = {line.partition(":")[0] for line in text.splitlines()}
    if "method: grid" in text:
        named.add("run_cap")
    first = [line for line in FIRST.splitlines() if line.partition(":")[0] not in named]
    (file := folder / "s.yaml").write_text("\n".join([*first, text]))
    return file


@pytest.mark.parametrize("text", CASES, ids=[text.splitlines()[0] for text in CASES])
def test_a_file_runs_as_with_wandb_or_says_why_not(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.sweep.running.python_of", lambda environ: "python")
    file = written(text, tmp_path)
    try:
        (found,) = open_sweep(file, Settings.read({}), sets=[], given={}).examples(1)
    except InvalidConfig as error:
        found = str(error)
        assert found.startswith(("s.yaml:", NO_PLACE))
        assert CASES[text] in found
    else:
        assert found == CASES[text].replace("HERE", str(tmp_path))


REFUSED = [text for text, found in CASES.items() if not found.startswith(COMMANDS)]


@pytest.mark.parametrize("text", REFUSED, ids=[text.splitlines()[0] for text in REFUSED])
def test_a_run_is_refused_as_its_rehearsal_is(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["run", str(written(text, tmp_path)), "--storage", str(tmp_path / "results")]
    assert main([*words, "--dry-run"]) == 2
    said = capsys.readouterr()
    assert main(words) == 2
    assert capsys.readouterr() == said
    assert CASES[text] in said.err
    assert not (tmp_path / "results").exists()
