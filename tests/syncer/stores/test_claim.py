"""Claims: their keys, and which one is the newest."""

import pytest

from holdfast.syncer.stores.owned_store import Claim


@pytest.mark.parametrize("number", [1, 999_999, 1_000_000])
def test_a_claim_is_read_from_its_key(number: int) -> None:
    assert Claim.parse(Claim(number).key) == Claim(number)


def test_the_first_claim_has_six_digits() -> None:
    assert Claim(1).key == ".epochs/000001"


@pytest.mark.parametrize(
    "key", ["", "000001", ".epochs/.tmp-000001", ".epochs/1", "other/000001", "a/.epochs/000001"]
)
def test_other_keys_are_not_claims(key: str) -> None:
    assert Claim.parse(key) is None


def test_the_newest_claim_has_the_greatest_number() -> None:
    assert Claim.newest([".epochs/999999", ".epochs/1000000", ".epochs/.tmp-x"]) == Claim(
        1_000_000
    )
    assert Claim.newest(["head.json"]) is None
