"""From records to states: every odd record costs itself only."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from nearline_fakes import AT, window

from nearline.release import Release
from nearline.states import Record, StateMaker, sort_out
from schemas.event import MAX_RECORD_BYTES
from schemas.window import DeadLetter, Window, WindowEvent

GOOD = window(["item-1"])


def with_events(*events: WindowEvent) -> bytes:
    return msgspec.json.encode(Window(list(events)))


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (None, GOOD, "no key"),
        (b"", GOOD, "1 to 256 characters"),
        (b"\xff\xfe", GOOD, "UTF-8"),
        (b"a\nb", GOOD, "control characters"),
        (b"x" * 10_240, GOOD, "1 to 256 characters"),
        (b"u", b"", "not a window"),
        (b"u", GOOD[:-5], "not a window"),
        (b"u", b"[]", "not a window"),
        (b"u", b"null", "not a window"),
        (b"u", b"\xff\xfe{}", "not a window"),
        (b"u", b'{"events":[]}', "no events"),
        (b"u", b'{"events":1e400}', "not a window"),
        (b"u", with_events(WindowEvent("e", "i", "click", -1)), "at is not in milliseconds"),
        (b"u", with_events(WindowEvent("e", "i", "click", 1_700_000_000)), "at is not in milliseconds"),
        (b"u", with_events(WindowEvent("e", "i", "stare", AT)), "unknown kind"),
        (b"u", b'{"events":"' + b"x" * 5_000_000, "not a window"),
    ],
)
def test_a_bad_record_becomes_one_letter_and_the_good_one_counts(key: bytes | None, value: bytes, reason: str) -> None:
    found = sort_out([Record(2, 7, key, value, 123), Record(2, 8, b"u", GOOD)], "windows")
    (letter,) = found.letters
    assert reason in letter.reason
    assert (letter.topic, letter.partition, letter.offset, letter.arrived_at) == ("windows", 2, 7, 123)
    assert letter.payload == value[:MAX_RECORD_BYTES]
    assert msgspec.json.decode(msgspec.json.encode(letter), type=DeadLetter) == letter
    assert list(found.windows) == ["u"]


def test_the_newest_window_of_a_user_is_kept() -> None:
    found = sort_out([Record(0, n, b"u", window([f"i{n}"], AT - n)) for n in range(3)], "windows")
    assert found.windows["u"].record.offset == 2


def test_a_bad_record_does_not_hide_the_good_one_before_it() -> None:
    found = sort_out([Record(0, 0, b"u", GOOD), Record(0, 1, b"u", b"{")], "windows")
    assert found.windows["u"].record.offset == 0
    assert len(found.letters) == 1


def test_a_tombstone_drops_the_windows_before_it_and_not_those_after() -> None:
    records = [Record(0, 0, b"u", GOOD), Record(0, 1, b"u", None), Record(0, 2, b"v", None), Record(0, 3, b"v", GOOD)]
    found = sort_out(records, "windows")
    assert found.forgotten == {"u": 1, "v": 2}
    assert list(found.windows) == ["v"]


def some_items(release: Release, count: int) -> list[str]:
    return list(release.item_number)[:count]


def read(value: bytes, user: str = "u") -> list:
    return list(sort_out([Record(0, 0, user.encode(), value)], "windows").windows.values())


def test_a_state_says_what_it_was_made_from(release: Release) -> None:
    first, second = some_items(release, 2)
    made = StateMaker(release).make(read(window(["?", first, second, first], arrived_at=77)), now_ms=99)
    ((state, reading),) = made.states
    assert (state.user_id, state.release, state.made_at) == ("u", release.id, 99)
    # the unknown item was still an event: it moves the watermark
    assert (state.watermark, state.arrived_at) == (AT, 77)
    assert state.items == [release.item_number[one] for one in (first, second, first)]
    assert state.times == [AT - n * 60_000 for n in (1, 2, 3)]
    assert state.kinds == [2, 2, 2]
    assert len(state.rows) == release.model.state_rows * release.model.width * 2
    assert 0 < len(state.neighbour_items) == len(state.neighbour_scores) <= release.model.neighbours
    assert made.num_unknown == 1
    assert reading.record.offset == 0


def test_only_unknown_items_give_an_empty_state(release: Release) -> None:
    ((state, _),) = StateMaker(release).make(read(window(["?", "??"]))).states
    assert (state.rows, state.num_rows, state.items, state.neighbour_items) == (b"", 0, [], [])
    assert state.watermark == AT


def test_the_window_is_cut_to_what_the_model_sees(release: Release) -> None:
    items = (some_items(release, 3) * release.model.window)[: release.model.window + 4]
    ((state, _),) = StateMaker(release).make(read(window(items))).states
    assert len(state.items) == release.model.window


def test_a_state_that_is_not_finite_is_refused_by_user(release: Release) -> None:
    poisoned, clean = some_items(release, 2)
    item_in = np.array(release.arrays["item_in"])
    item_in[release.item_number[poisoned] + 1] = np.nan
    broken = Release(
        release.manifest,
        release.encoder,
        release.decoder,
        {**release.arrays, "item_in": item_in},
        release.item_number,
        release.users,
    )
    readings = read(window([clean]), "well") + read(window([clean, poisoned]), "ill")
    made = StateMaker(broken).make(readings)
    assert [state.user_id for state, _ in made.states] == ["well"]
    ((reading, reason),) = made.refused
    assert reading.user_id == "ill"
    assert "not finite" in reason
    assert "'ill'" in reason
