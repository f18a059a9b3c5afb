"""The width of text on a terminal, and table headers: short, and different for each name."""

import pytest

from holdfast.text.values import cut, cut_apart, filled, short_headers, width_of


@pytest.mark.parametrize(
    ("names", "headers"),
    [
        (["lr", "net/width"], ["lr", "width"]),
        (["net/lr", "opt/lr"], ["net/lr", "opt/lr"]),
        (["net/lr", "opt/lr", "opt/beta"], ["net/lr", "opt/lr", "beta"]),
        (["a/net/lr", "b/net/lr", "opt/lr"], ["a/net/lr", "b/net/lr", "opt/lr"]),
        (["lr", "opt/lr"], ["lr", "opt/lr"]),
        (["loss", "val/loss", "train/loss"], ["loss", "val/loss", "train/loss"]),
        (["epoch/time"], ["epoch/time"]),
        (["a/"], ["a/"]),
        (["an_exceptionally_long_one"], ["…onally_long_one"]),
        (["train/an_accuracy_of_top_5", "val/an_accuracy_of_top_5"], None),
        (
            ["an_accuracy_of_top_5", "an_accuracy_of_top_1"],
            ["…curacy_of_top_5", "…curacy_of_top_1"],
        ),
        ([], []),
    ],
)
def test_a_header_is_as_much_of_the_end_as_makes_it_unlike_the_others(
    names: list[str], headers: list[str] | None
) -> None:
    assert short_headers(names, 16, ("trial", "time")) == (headers or names)


def test_names_that_are_alike_have_headers_that_are() -> None:
    assert short_headers(["net/lr", "net/lr"], 16) == ["net/lr", "net/lr"]


def test_what_is_cut_is_not_like_what_was_short() -> None:
    assert cut_apart(["…bcd", "abcd", "xxbcd"], 4) == ["…bcd", "abcd", "xxbcd"]


def test_widths_are_those_of_a_terminal() -> None:
    assert width_of("漢字") == 4
    assert width_of("e\u0301") == 1
    assert cut("漢字漢字", 5) == "漢字…"
    assert cut("abc", 3) == "abc"
    assert cut("abc", 0) == ""
    assert filled("漢", 4) == "漢  "
    assert filled("1", 3, right=True) == "  1"
