"""The ranges that are left, against a list with one entry per offset."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nearline import left as lefts
from nearline.left import MAX_RANGES, NOBODY, Before, Left, begun, changed, count, label, lost, read_label, without
from schemas.canary import Split

SIZE = 40
OFFSETS = st.integers(0, SIZE)
ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("changed"), OFFSETS, st.sampled_from("abc")),
        st.tuples(st.just("begun"), st.sampled_from("abc")),
        st.tuples(st.just("lost"), OFFSETS, OFFSETS),
        st.tuples(st.just("without"), OFFSETS),
    ),
    max_size=8,
)


def also(before: Before | None, split: Split) -> Before:
    if before is None:
        return (split,)
    return before if split in before or NOBODY in before else (*before, split)


def spread(left: Left) -> list[Before | None]:
    found: list[Before | None] = [None] * SIZE
    for one in left:
        assert one.start < one.end
        for offset in range(one.start, one.end):
            assert found[offset] is None
            found[offset] = one.before
    return found


@given(ACTS)
def test_ranges_are_those_of_the_offsets(acts: list[tuple[str, int, int | str]]) -> None:
    left: Left = ()
    naive: list[Before | None] = [None] * SIZE
    for name, *args in acts:
        if name == "changed":
            end, before = args
            left = changed(without(left, end), end, Split(before))
            naive = [also(one, Split(before)) if n < end else None for n, one in enumerate(naive)]
        elif name == "begun":
            left = begun(left, Split(args[0]))
            naive = [one and also(one, Split(args[0])) for one in naive]
        elif name == "lost":
            start, end = sorted(args)
            left = lost(left, start, end)
            naive = [(NOBODY,) if start <= n < end else one for n, one in enumerate(naive)]
        else:
            left = without(left, args[0])
            naive = [one if n < args[0] else None for n, one in enumerate(naive)]
        assert spread(left) == naive
        assert count(left) == sum(one is not None for one in naive)
        split = Split("now", "tried", 0.25)
        assert read_label(label(split, left)) == (split, left)


def test_what_a_label_can_not_hold_is_encoded_again() -> None:
    left: Left = tuple(lefts.Range(2 * n, 2 * n + 1, (Split(f"r{n}"),)) for n in range(MAX_RANGES + 1))
    assert changed(left, 100, Split("a")) == (lefts.Range(0, 100, (NOBODY,)),)
    assert len(label(Split("f" * 16, "e" * 16, 0.123456789), left)) < 4096
    assert read_label("abc;1-x:d") == (NOBODY, ())
    assert read_label("abc") == (Split("abc"), ())
