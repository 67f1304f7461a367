"""The numbers of a family of releases, against looking each item up by its name."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import ReleaseError
from schemas.lineage import Family, Lineage, Step, read_lineage

ACTS = st.lists(
    st.tuples(
        st.lists(st.integers(0, 999), max_size=4),  # codes of new items
        st.sets(st.integers(0, 30), max_size=4),  # serials that are withdrawn now
    ),
    min_size=1,
    max_size=6,
)


class Shop:
    """A catalogue that grows and loses items, numbered as a release numbers it."""

    def __init__(self, codes: list[int]) -> None:
        self.base = sorted(codes)
        self.codes = list(self.base)  # by serial
        self.withdrawn: set[int] = set()
        self.steps: list[Step] = []
        self.said: set[int] = set()
        self.past: list[tuple[str, list[int]]] = []  # release, serials by number

    def order(self) -> list[int]:
        return sorted(range(len(self.codes)), key=lambda serial: (serial in self.withdrawn, self.codes[serial]))

    def release(self) -> None:
        name = f"r{len(self.steps)}"
        self.past.append((name, self.order()))
        gone, back = self.withdrawn - self.said, self.said - self.withdrawn
        self.steps.append(Step(name, len(self.codes) - len(self.base), sorted(gone), sorted(back)))
        self.said = set(self.withdrawn)

    def change(self, codes: list[int], withdrawn: set[int]) -> None:
        self.codes += [code for code in dict.fromkeys(codes) if code not in self.codes]
        self.withdrawn = {serial for serial in withdrawn if serial < len(self.codes)}

    def lineage(self) -> Lineage:
        rank = {
            serial: place for place, serial in enumerate(sorted(range(len(self.codes)), key=self.codes.__getitem__))
        }
        inserted = [rank[serial] for serial in range(len(self.base), len(self.codes))]
        return Lineage(len(self.base), inserted, sorted(self.withdrawn), self.steps)


@given(st.sets(st.integers(0, 999), min_size=1, max_size=12), ACTS)
def test_every_ancestors_numbers_are_found(codes, acts):
    shop = Shop(list(codes))
    for added, withdrawn in acts:
        shop.release()
        shop.change(added, withdrawn)
    family = Family(read_lineage(msgspec.msgpack.encode(shop.lineage()), "here"))
    now = {serial: number for number, serial in enumerate(shop.order())}
    assert family.ancestors == {name for name, _ in shop.past}
    for name, serials in shop.past:
        assert family.numbers(name, range(len(serials))) == [now[serial] for serial in serials]
        assert family.numbers(name, [-1, len(serials), 10_000]) == [-1, -1, -1]
        live = [number < family.num_live for number in family.numbers(name, range(len(serials)))]
        assert live == [serial not in shop.withdrawn for serial in serials]
    assert family.num_items == len(shop.codes)


def test_a_stranger_has_no_numbers_and_damage_is_told():
    family = Family(Lineage(3, [], [], [Step("base", 0)]))
    with pytest.raises(KeyError):
        family.numbers("other", [0])
    with pytest.raises(ReleaseError, match=r"here: damaged"):
        read_lineage(b"\x00", "here")
