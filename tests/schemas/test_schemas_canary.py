"""Who is in a canary's share."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from schemas.canary import Split, in_share, read_split

SHARES = st.floats(0, 1)
NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)


@given(NAMES, NAMES, SHARES, SHARES)
def test_a_larger_share_only_adds_users(user: str, release: str, one: float, other: float) -> None:
    small, large = sorted((one, other))
    assert in_share(user, release, large) or not in_share(user, release, small)


@given(NAMES, NAMES)
def test_no_share_is_nobody_and_the_whole_is_everybody(user: str, release: str) -> None:
    assert not in_share(user, release, 0.0)
    assert in_share(user, release, 1.0)


def test_the_share_is_kept_and_each_release_has_its_own_users() -> None:
    users = [f"u{n}" for n in range(20_000)]
    tried = {user for user in users if in_share(user, "a", 0.1)}
    other = {user for user in users if in_share(user, "b", 0.1)}
    assert 1_850 < len(tried) < 2_150
    assert 120 < len(tried & other) < 290  # a tenth of a tenth: they are independent


def test_the_places_never_change() -> None:
    """Two versions of the code run side by side while one is rolled out: they must agree."""
    tried = [n for n in range(40) if in_share(f"u{n}", "0123456789abcdef", 0.25)]
    assert tried == [2, 5, 14, 17, 25, 28, 29, 31, 35, 38, 39]


@given(SHARES)
def test_a_split_is_read_back(share: float) -> None:
    for split in (Split("a"), Split("a", "b", share)):
        assert read_split(str(split)) == split


def test_a_text_of_another_form_is_a_release() -> None:
    for text in ("", "a+b", "a+b@much", "a@0.5"):
        assert read_split(text) == Split(text)


def test_a_split_names_the_release_of_each_user() -> None:
    split = Split("a", "b", 0.5)
    assert {split.of(f"u{n}") for n in range(50)} == {"a", "b"}
    assert all((split.of(f"u{n}") == "b") == in_share(f"u{n}", "b", 0.5) for n in range(50))
    assert {Split("a").of(f"u{n}") for n in range(50)} == {"a"}
