"""The settings that a journal has for a restore are checked before anything uses them."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.trial.config import checked_options


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"tags": ["data"]}, "tags must be a table of texts, not a list of 1"),
        ({"tags": {"data": 3}}, "tags must be a table of texts, not a dict of 1"),
        ({"tags": {"data": {"v": "3"}}}, "tags must be a table of texts"),
        ({"verbose": 9}, "verbose must be 0 to 3, not 9"),
        ({"objects": "callbacks"}, "objects must be a list of names, not 'callbacks'"),
        ({"trainer": "os.system"}, "trainer must be the name of a class, not 'os.system'"),
        ({"log_to_file": "../out"}, "log_to_file"),
    ],
)
def test_an_option_of_a_wrong_type_is_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        checked_options(options)


def test_options_of_a_run_and_those_of_other_versions_are_taken() -> None:
    options = {"tags": {"data": "v3"}, "verbose": None, "of a later version": {"a": 1}}
    assert checked_options(options) == options
    as_given = {"chdir_to_trial_dir": 1}  # TuneConfig takes it, as it takes reuse_actors=1
    assert checked_options(as_given) == as_given
    assert checked_options({}) == {}
