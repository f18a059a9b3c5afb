"""Names from outside: one plain component each, and nothing that steers a terminal."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.experiment.folder import layout
from holdfast.names import UnsafeName, folder_name, inner_path, plain_name, printable, shown
from holdfast.syncer.artifacts.settings import ENDED_NAME, INDEX_NAME, LISTING_NAME
from holdfast.syncer.files.tree import MANIFEST_NAME

HOSTILE = st.text(st.sampled_from("./\\ab\0\n\x1b~ \u202e\ud800-"), max_size=12)


def refused(check: Callable[[object], str], name: str) -> str:
    """Why the name is refused, "" where it is taken."""
    try:
        check(name)
    except UnsafeName as error:
        return str(error)
    return ""


@given(name=HOSTILE)
def test_a_plain_name_stays_in_its_folder(name: str) -> None:
    refusal = refused(plain_name, name)
    assert refusal.isprintable()
    assert refusal or name == os.path.basename(os.path.normpath(f"/x/{name}"))
    assert refusal or "\0" not in name


@given(path=st.lists(HOSTILE).map("/".join))
def test_an_inner_path_leads_nowhere_else(path: str) -> None:
    refusal = refused(inner_path, path)
    assert refusal.isprintable()
    assert refusal or os.path.normpath(f"/x/{path}") == f"/x/{path}"


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "a/b", "/a", "a\\b", "a\nb", "a\0b", "a\x1b[2J", "x" * 256, 5, None, b"a"],
)
def test_what_is_not_a_plain_name_is_refused(name: object) -> None:
    with pytest.raises(UnsafeName):
        plain_name(name)


@pytest.mark.parametrize(
    "name",
    [
        *(layout.JOURNAL, layout.LOCK, layout.HEAD, layout.TUNER, layout.TRAINER),
        *(
            layout.CALLBACKS,
            layout.MIRROR_OF,
            layout.MIRROR_AT,
            layout.POLICY_LOG,
            layout.STAGING,
            layout.NODES,
        ),
        *(
            ENDED_NAME,
            INDEX_NAME,
            LISTING_NAME,
            MANIFEST_NAME,
            ".epochs",
            ".tmp-1",
            ".hidden",
            "Journal",
        ),
        f"{layout.SNAPSHOT_PREFIX}2026.json",
        f"{layout.VARIANTS_PREFIX}2026.json",
        f"{layout.CURSOR_PREFIX}x.json",
        f"{layout.UNDELIVERED_PREFIX}x.json",
        f"{layout.POLICY_LOG_PREFIX}t0.txt",
    ],
)
def test_no_trials_folder_has_a_name_of_our_own(name: str) -> None:
    with pytest.raises(UnsafeName):
        folder_name(name)


def test_usual_names_are_taken() -> None:
    for name in ("train_a1b2c_00000_0_lr=0.1_2026-11-22", "größe", "日本", "a b", "x" * 255):
        assert folder_name(name) == name


def test_what_steers_a_terminal_is_shown_and_not_sent() -> None:
    assert printable("a\x1b[2Jb\x07\r\n\u202e\ud800ü") == "a\\x1b[2Jb\\x07\\r\\n\\u202e\\ud800ü"
    assert printable("a\nb\tc", keep="\n\t") == "a\nb\tc"
    assert shown("x\x1b" * 500).isprintable()
    assert len(shown("x\x1b" * 500)) < 400
    assert shown(1 << 10_000) == "an integer of 10,001 bits"
    assert shown([[]]) == "a list of 1"
