"""Names that holdfast does not have: the error says what to write instead."""

from __future__ import annotations

import importlib
import re
from operator import attrgetter

import pytest

import holdfast
from holdfast import train, tune
from holdfast.replaced import REPLACED


@pytest.mark.parametrize(
    ("package", "name"), [(package, name) for package, names in REPLACED.items() for name in names]
)
def test_a_name_of_another_library_is_replaced_by_names_that_exist(
    package: str, name: str
) -> None:
    module = importlib.import_module(package)
    with pytest.raises(AttributeError, match=f"has no attribute '{name}'. Use ") as caught:
        getattr(module, name)
    mentioned = re.findall(r"\b(?:holdfast\.)?((?:tune|train)(?:\.\w+)+)", str(caught.value))
    assert mentioned
    for path in mentioned:
        top, _, rest = path.partition(".")
        if rest.startswith("torch."):
            continue  # needs PyTorch
        assert attrgetter(rest)({"tune": tune, "train": train}[top])


def test_a_misspelled_name_is_an_ordinary_error_that_knows_its_module() -> None:
    with pytest.raises(AttributeError, match=r"has no attribute 'Tuners'$") as caught:
        tune.Tuners  # noqa: B018
    assert (caught.value.name, caught.value.obj) == ("Tuners", tune)
    assert not hasattr(holdfast, "remotes")
