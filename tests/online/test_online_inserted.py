"""A release that grew by insertion: new arrays, the sessions stay, what was made with the parent is taken over."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import numpy as np
import pytest
from online_inserted import NEW, insert_one
from online_values import FIXTURES, KEY, NOW_MS, long, make_state
from test_online_service import Shelf

from online import judge, takeover
from online.graph import Graph
from online.release import Release, load
from online.releases import Loaded, Releases
from online.service import Recall
from schemas.api import PromptEmbedding, RecallRequest, RecallResponse
from schemas.errors import ReleaseError
from schemas.lineage import Family, Lineage, Step
from schemas.names import State
from schemas.registry import ReleaseRow, Status
from schemas.state import Candidates


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    folder = tmp_path_factory.mktemp("grown") / "release"
    return folder, insert_one(folder)


@pytest.fixture
def sessions(monkeypatch) -> list[str]:
    """The graphs that a session is made for from here on."""
    made, whole = [], Graph.__init__

    def counted(self, path, arrays):
        made.append(Path(path).name)
        whole(self, path, arrays)

    monkeypatch.setattr(Graph, "__init__", counted)
    return made


def decode(release: Release, near=None) -> list[np.ndarray]:
    state = make_state(release)
    none = np.full((1, 1), -1, np.int64)
    rows, _ = judge.state_rows(state, release.model)
    near = near or judge.neighbours(None, release.model)
    return release.decoder.run(release.decoder_feed(rows, release.arrays["prompt_defaults"][:1], near, (none, none)))


def test_no_session_is_made_and_the_answers_are_those_of_a_fresh_one(grown, release, sessions):
    folder, _ = grown
    before = decode(release)
    child = load(folder, KEY, beside=[release])
    assert sessions == []
    assert child.usual_s.keys() == release.usual_s.keys()
    fresh = load(folder, KEY)
    assert "decoder.onnx" in sessions
    for made, expected in zip(decode(child), decode(fresh), strict=True):
        assert np.array_equal(made, expected)
    for after, old in zip(decode(release), before, strict=True):
        assert np.array_equal(after, old), "the parent goes on as before"


def test_the_new_item_is_found_by_the_child_only(grown, release):
    folder, number = grown
    child = load(folder, KEY, beside=[release])
    item, score = judge.neighbours(None, child.model)
    item[0, 0], score[0, 0] = number, 1e4
    items, scores = decode(child, (item, score))[:2]
    best = child.items(items[0][:1], scores[0][:1])[0]
    assert best.item_id == NEW
    assert best.sid == child.arrays["item_codes"][number].tolist()
    assert NEW not in release.item_numbers


def test_another_graph_has_its_own_session(grown, release, sessions):
    other = Release(**{name: getattr(release, name) for name in Release.__slots__} | {"graphs": {}})
    load(grown[0], KEY, beside=[other])
    assert "decoder.onnx" in sessions


def test_arrays_that_the_graph_does_not_take_are_refused(release):
    with pytest.raises(ReleaseError, match="does not take"):
        release.decoder.with_arrays({"what": np.zeros(1)})


def test_what_was_made_with_the_parent_is_answered_by_the_child(plan, grown, release, sessions):
    folder, _ = grown
    rows = [ReleaseRow(release.id, str(FIXTURES / "release"), "", {}, Status.CURRENT, 0)]
    releases = Releases(lambda: rows[0], lambda row, beside: load(Path(row.path), KEY, row.id, beside))
    releases.loaded = Loaded(release)
    child = load(folder, KEY, beside=[release])
    rows[0] = ReleaseRow(child.id, str(folder), "", {}, Status.CURRENT, 0)
    releases.tick()
    assert sessions == []
    assert releases.loaded.ids == {child.id}, "the parent is needed no more"
    shelf = Shelf(make_state(release, "old"), make_state(child, "encoded"))
    recall = Recall(plan, shelf, releases, now_ms=lambda: NOW_MS)

    prompt = PromptEmbedding(release.id, np.zeros(rows_of(release), "<f4").tobytes(), release.model.prompt_rows, 0)

    async def run() -> list[RecallResponse]:
        requests = [RecallRequest(user_id=user, k=5, prompt=prompt) for user in ("old", "encoded", "stranger")]
        return [await recall.answer(request, long()) for request in requests]

    old, encoded, stranger = asyncio.run(run())
    recall.lanes.close()
    assert {one.release for one in (old, encoded, stranger)} == {child.id}
    assert old.assets["intent_state"].state is State.FRESH
    assert {one.assets["prompt_embedding"].state for one in (old, encoded, stranger)} == {State.FRESH}


def rows_of(release: Release) -> tuple[int, int]:
    return release.model.prompt_rows, release.model.width


def test_the_numbers_are_the_childs_and_what_is_withdrawn_is_left_out(grown, release):
    folder, number = grown
    child = load(folder, KEY, beside=[release])
    total = release.model.num_items
    state = msgspec.structs.replace(
        make_state(release),
        items=[0, number, total - 1],
        neighbour_items=[total - 1, number, number - 1, 99_999],
        neighbour_scores=[4.0, 3.0, 2.0, 1.0],
    )
    listed = Candidates("u", release.id, 0, 0, [number, 0, total - 1], [3.0, 2.0, 1.0])
    taken = takeover.state_of(child, state)
    names = [release.catalogue.item_ids[n] for n in state.items]
    assert [child.catalogue.item_ids[n] for n in taken.items] == names
    assert (taken.release, taken.rows) == (child.id, state.rows)
    assert taken.neighbour_items == [total, number + 1, number - 1]
    assert takeover.list_of(child, listed).items == [number + 1, 0, total]
    # The last item and the one before the new one are withdrawn: their numbers are the last two now.
    lineage = Lineage(total, [number], [number - 1, total - 1], [Step(release.id, 0)])
    less = Release(**{name: getattr(child, name) for name in Release.__slots__} | {"family": Family(lineage)})
    taken = takeover.state_of(less, state)
    assert taken.items == [0, number, total]
    assert (taken.neighbour_items, taken.neighbour_scores) == ([number], [3.0])
    assert takeover.list_of(less, listed).items == [number, 0]
    stranger = msgspec.structs.replace(state, release="other")
    assert takeover.state_of(child, stranger) is stranger
    assert takeover.state_of(release, state) is state
