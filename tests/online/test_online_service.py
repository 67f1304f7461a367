"""One request from look-up to answer: every rung, every fault, one release per answer."""

from __future__ import annotations

import asyncio
import dataclasses

import numpy as np
import pytest
from online_proxy import proxied
from online_values import NOW_MS, long, make_candidates, make_state, put
from test_online_decoder import FakeGraph, faked

from online.cache import Pair
from online.case import CANDIDATES, GENERATOR, LISTS, PROMPT, STATE
from online.deadline import Deadline
from online.release import Cohorts
from online.releases import Loaded, Releases
from online.service import Recall
from online.store import Found, Store
from schemas.api import PromptEmbedding, RecallRequest
from schemas.names import Reason, Rung, State
from schemas.state import encode_candidates, encode_state


class Shelf:
    """A store that holds what the test puts in."""

    def __init__(self, *values, fault=None) -> None:
        self.found: dict[str, Found] = {}
        self.fault = fault
        for value in values:
            old = self.found.get(value.user_id, Found(Pair(None, None))).pair
            state = encode_state(value, 1) if hasattr(value, "bucket") else old.state
            listed = old.candidates if hasattr(value, "bucket") else encode_candidates(value, 1)
            self.found[value.user_id] = Found(Pair(state, listed))

    async def find(self, user_id, deadline):
        if self.fault:
            return Found(None, self.fault)
        return self.found.get(user_id, Found(Pair(None, None)))

    def remembered(self, user_id, fault):
        return Found(None, fault, cached=True)


@pytest.fixture
def make(plan, releases):
    """Make a service over a store; the wall clock stands at NOW_MS."""
    made = []

    def build(store, loaded=None):
        if loaded is not None:
            releases.loaded = loaded
        made.append(Recall(plan, store, releases, now_ms=lambda: NOW_MS))
        return made[-1]

    yield build
    for recall in made:
        recall.decoder.close()


def ask(recall, deadline=None, user_id="u1", **fields):
    return asyncio.run(recall.answer(RecallRequest(user_id=user_id, **fields), deadline or long()))


def numbers(release, response):
    return [release.item_numbers[item.item_id] for item in response.items]


def decoded(release, state, bucket, prompt=None):
    """What the decoder itself says, from the same rows."""
    from online import judge

    rows = (
        judge.state_rows(state, release.model)[0] if state else release.arrays["intent_defaults"][bucket : bucket + 1]
    )
    none = np.full((1, 1), -1, np.int64)
    prompt = release.arrays["prompt_defaults"][bucket : bucket + 1] if prompt is None else prompt
    items, _ = release.decoder.run(
        release.decoder_feed(rows, prompt, judge.neighbours(state, release.model), (none, none))
    )
    return [item for item in items[0].tolist() if item >= 0]


def test_generate_from_the_state(make, release):
    state = make_state(release)
    response = ask(make(Shelf(state)), k=10)
    assert response.rung is Rung.GENERATE
    assert response.release == release.id
    assert response.assets[STATE].state is State.FRESH
    assert response.assets[STATE].age_s == 1.0
    assert response.assets[PROMPT].reason is Reason.NOT_SENT
    assert response.assets[GENERATOR].state is response.assets[LISTS].state is State.FRESH
    assert numbers(release, response) == decoded(release, state, state.bucket)[:10]
    assert response.skipped == {}
    assert [item.score for item in response.items] == sorted((item.score for item in response.items), reverse=True)


def test_no_state_takes_the_buckets_rows(make, release):
    user_id = "u2"
    bucket = release.profiles.users[user_id]
    response = ask(make(Shelf()), user_id=user_id, k=20)
    assert response.rung is Rung.GENERATE
    assert response.assets[STATE].state is State.MISSING
    assert numbers(release, response) == decoded(release, None, bucket)


@pytest.mark.parametrize("context", [{"bucket": "55+|high"}, {"bucket": "no such"}, {}])
def test_a_stranger_may_name_the_bucket(make, release, context):
    response = ask(make(Shelf()), user_id="stranger", k=20, context=context)
    bucket = release.bucket_numbers.get(context.get("bucket", ""), 0)
    assert numbers(release, response) == decoded(release, None, bucket)


def test_a_prompt_of_this_release_is_used(make, release):
    state = make_state(release)
    rows = np.random.default_rng(5).standard_normal((1, 1, release.model.width)).astype("<f4") * 3
    sent = PromptEmbedding(release.id, rows.tobytes(), 1, 100)
    response = ask(make(Shelf(state)), k=20, prompt=sent)
    assert response.assets[PROMPT].state is State.FRESH
    assert numbers(release, response) == decoded(release, state, state.bucket, rows)
    assert set(response.ledger.saved_ms) == {STATE, PROMPT}
    assert numbers(release, response) != decoded(release, state, state.bucket), "the rows made no difference"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"release": "other"}, Reason.OTHER_RELEASE),
        ({"rows": b"\0" * 8}, Reason.BAD_SHAPE),
        ({"rows": np.full(16, np.nan, "<f4").tobytes()}, Reason.NOT_FINITE),
        ({"age_ms": 61_000}, Reason.TOO_OLD),
    ],
)
def test_a_prompt_that_can_not_be_used_is_replaced(make, release, changes, reason):
    state = make_state(release)
    fields = {"release": release.id, "rows": np.ones(16, "<f4").tobytes(), "num_rows": 1} | changes
    response = ask(make(Shelf(state)), k=20, prompt=PromptEmbedding(**fields))
    assert response.rung is Rung.GENERATE
    assert response.assets[PROMPT].reason is reason
    assert numbers(release, response) == decoded(release, state, state.bucket)
    assert set(response.ledger.saved_ms) == {STATE}


@pytest.mark.parametrize(
    ("changes", "state", "reason"),
    [
        ({"made_at": NOW_MS - 61 * 86_400_000}, State.EXPIRED, Reason.TOO_OLD),
        ({"rows": np.full(16, np.nan, "<f2").tobytes()}, State.EMPTY, Reason.NOT_FINITE),
        ({"rows": b""}, State.EMPTY, Reason.BAD_SHAPE),
        ({"release": "gone"}, State.MISMATCHED, Reason.OTHER_RELEASE),
        ({"bucket": 99}, State.FRESH, Reason.OK),
    ],
)
def test_a_state_that_can_not_be_used_never_stops_the_answer(make, release, changes, state, reason):
    response = ask(make(Shelf(make_state(release, **changes))))
    assert response.rung is Rung.GENERATE
    assert (response.assets[STATE].state, response.assets[STATE].reason) == (state, reason)
    assert response.items
    assert ("intent_state" in response.ledger.saved_ms) is (reason is Reason.OK)


def test_a_value_of_another_user_is_counted_and_never_returned(make, release):
    theirs = make_state(release, "u7")
    shelf = Shelf(theirs)
    shelf.found["u1"] = shelf.found["u7"]
    recall = make(shelf)
    response = ask(recall, k=20)
    assert response.assets[STATE].reason is Reason.WRONG_KEY
    assert numbers(release, response) == decoded(release, None, release.profiles.users["u1"])
    assert recall.metrics.registry.get_sample_value("beforehand_wrong_key_total") == 1


def test_a_value_from_the_future_is_fresh_and_counted(make, release):
    recall = make(Shelf(make_state(release, made_at=NOW_MS + 60_000)))
    response = ask(recall)
    assert (response.assets[STATE].state, response.assets[STATE].age_s) == (State.FRESH, 0)
    assert recall.metrics.registry.get_sample_value("beforehand_ahead_total") == 1


def test_states_of_the_old_release_are_answered_by_it(make, release, other):
    old, new = make_state(release, "u1"), make_state(other, "u2")
    recall = make(Shelf(old, new), Loaded(other, release))
    first, second = ask(recall, k=20), ask(recall, user_id="u2", k=20)
    assert (first.release, second.release) == (release.id, other.id)
    assert numbers(release, first) == decoded(release, old, old.bucket)
    assert numbers(other, second) == decoded(other, new, new.bucket)


def without_list(release, bucket):
    """The release without a list for this bucket."""
    items = release.arrays["cohort_items"].copy()
    items[bucket] = -1
    cohorts = Cohorts(items, release.arrays["cohort_scores"], release.model.num_items)
    return dataclasses.replace(release, cohorts=cohorts)


@pytest.mark.parametrize("rung", [rung for rung in Rung if rung is not Rung.NONE])
def test_what_the_current_release_has_withdrawn_no_other_shows(make, release, other, rung):
    old = make_state(release)
    own = release if rung is Rung.GENERATE else faked(release, error=RuntimeError("no kernel"))
    shelf = Shelf(old, make_candidates(release)) if rung is Rung.NEARLINE else Shelf(old)
    if rung is Rung.POPULAR:
        own = without_list(own, old.bucket)
    first = ask(make(shelf, Loaded(other, own)), k=20)
    assert (first.rung, first.release) == (rung, release.id)
    gone = [release.item_numbers[item.item_id] for item in first.items[:2]]
    mask = np.isin(np.arange(release.model.num_items), gone)
    second = ask(make(shelf, Loaded(other, own, gone={release.id: mask})), k=20)
    assert second.rung is rung
    left = [number for number in numbers(release, first) if number not in gone]
    assert numbers(release, second)[: len(left)] == left
    assert not set(numbers(release, second)) & set(gone)


def test_the_lists_of_another_release_are_not_mixed_in(make, release, other):
    slow = faked(release)
    recall = make(Shelf(make_state(release), make_candidates(other)), Loaded(slow, other))
    response = ask(recall, Deadline(0.25))
    assert response.assets[CANDIDATES].state is State.MISMATCHED
    assert response.skipped.keys() == {"generate", "nearline"}
    assert response.skipped["generate"] in (Reason.DECODE_TIMEOUT, Reason.NO_TIME)
    assert response.skipped["nearline"] is Reason.OTHER_RELEASE
    assert response.rung is Rung.COHORT


def failing(release):
    return Loaded(faked(release, error=RuntimeError("no kernel")))


def test_the_nearline_rung(make, release):
    recall = make(Shelf(make_state(release), make_candidates(release)), failing(release))
    response = ask(recall, k=3)
    assert response.rung is Rung.NEARLINE
    assert response.skipped == {"generate": Reason.DECODE_FAILED}
    assert numbers(release, response) == [5, 3, 8]
    assert [item.score for item in response.items] == [4.0, 3.0, 2.0]
    assert response.ledger.saved_ms == {}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"items": [], "scores": []}, Reason.NO_CANDIDATES),
        ({"scores": [1.0]}, Reason.BAD_SHAPE),
        ({"items": [1, 2, 3, 2**64 - 1]}, Reason.BAD_SHAPE),
        ({"made_at": NOW_MS - 8 * 86_400_000}, Reason.TOO_OLD),
        ({"items": [-1, 60, 61, 62]}, Reason.NOTHING_ALLOWED),
    ],
)
def test_candidates_that_can_not_be_used(make, release, changes, reason):
    response = ask(make(Shelf(make_candidates(release, **changes)), failing(release)))
    assert response.rung is Rung.COHORT
    assert response.skipped["nearline"] is reason


def test_the_cohort_rung(make, release):
    response = ask(make(Shelf(), failing(release)), user_id="u3", k=7)
    bucket = release.profiles.users["u3"]
    assert response.rung is Rung.COHORT
    assert response.skipped == {"generate": Reason.DECODE_FAILED, "nearline": Reason.NO_CANDIDATES}
    assert numbers(release, response) == release.arrays["cohort_items"][bucket][:7].tolist()


def test_lists_past_their_age_leave_the_popular_one(plan, releases, release):
    releases.loaded = failing(release)
    later = NOW_MS + 40 * 86_400_000
    recall = Recall(plan, Shelf(), releases, now_ms=lambda: later)
    response = ask(recall, user_id="u3", k=5)
    assert response.rung is Rung.POPULAR
    assert response.skipped["cohort"] is Reason.TOO_OLD
    assert response.assets[LISTS].state is State.EXPIRED
    assert numbers(release, response) == release.arrays["cohort_items"][0][:5].tolist()


@pytest.mark.parametrize("rung", [Rung.GENERATE, Rung.NEARLINE, Rung.COHORT, Rung.POPULAR])
def test_exclusions_and_allow_lists_hold_on_every_rung(make, release, rung):
    excluded = [0, 5, *release.arrays["cohort_items"][0][:5].tolist(), *decoded(release, None, 0)[:5]]
    allow = release.catalogue.categories[:2]
    shelf = Shelf(make_state(release), make_candidates(release, items=list(range(60)), scores=[1.0] * 60))
    recall = make(shelf, Loaded(release) if rung is Rung.GENERATE else failing(release))
    if rung in (Rung.COHORT, Rung.POPULAR):
        recall._store = Shelf()
    if rung is Rung.POPULAR:
        recall._ladder = [Rung.POPULAR]
    names = [release.catalogue.item_ids[number] for number in excluded]
    response = ask(recall, k=60, exclude=[*names, "no such item"], allow=[*allow, "no such category"])
    assert response.rung is rung
    assert response.items
    assert len(response.items) <= release.model.k_max
    for number in numbers(release, response):
        assert number not in excluded
        assert release.arrays["item_category"][number] in (0, 1)


@pytest.mark.parametrize("fields", ["exclude", "allow"])
def test_nothing_allowed_is_an_empty_answer_never_filler(make, release, fields):
    given = {"exclude": release.catalogue.item_ids} if fields == "exclude" else {"allow": ["no such category"]}
    response = ask(make(Shelf(make_state(release), make_candidates(release))), **given)
    assert response.rung is Rung.NONE
    assert response.items == []
    assert set(response.skipped) == {"generate", "nearline", "cohort", "popular"}
    assert set(response.skipped.values()) == {Reason.NOTHING_ALLOWED}


def test_no_release_is_an_empty_answer_with_the_reason(make):
    response = ask(make(Shelf(), Loaded()))
    assert response.rung is Rung.NONE
    assert response.release == ""
    assert set(response.skipped.values()) == {Reason.NOT_LOADED}


@pytest.mark.parametrize("fault", [(State.UNAVAILABLE, Reason.STORE_DOWN), (State.TIMED_OUT, Reason.STORE_TIMEOUT)])
def test_a_store_fault_is_named_and_the_cohort_answers(make, release, fault):
    response = ask(make(Shelf(fault=fault)), user_id="u3", k=5)
    assert response.rung is Rung.COHORT
    assert response.skipped == {"generate": fault[1], "nearline": fault[1]}
    assert numbers(release, response) == release.arrays["cohort_items"][3][:5].tolist()
    assert (response.assets[STATE].state, response.assets[STATE].reason) == fault
    assert (response.assets[CANDIDATES].state, response.assets[CANDIDATES].reason) == fault
    assert response.ledger.saved_ms == {}


def test_with_the_store_gone_a_prompt_is_still_worth_generating_from(make, release):
    rows = np.full((1, 1, release.model.width), 2, "<f4")
    shelf = Shelf(fault=(State.UNAVAILABLE, Reason.STORE_DOWN))
    response = ask(make(shelf), user_id="u3", k=20, prompt=PromptEmbedding(release.id, rows.tobytes(), 1))
    assert response.rung is Rung.GENERATE
    assert numbers(release, response) == decoded(release, None, 3, rows)


def test_what_is_remembered_while_the_store_is_down_is_stale(make, release):
    shelf = Shelf(make_state(release))
    shelf.found["u1"] = Found(shelf.found["u1"].pair, (State.UNAVAILABLE, Reason.CIRCUIT_OPEN), cached=True)
    report = ask(make(shelf)).assets[STATE]
    assert (report.state, report.reason, report.age_s) == (State.STALE, Reason.CIRCUIT_OPEN, 1.0)


def test_a_spent_deadline_still_answers(make, release):
    response = ask(make(Shelf(make_state(release))), Deadline(0.0))
    assert response.rung in (Rung.COHORT, Rung.POPULAR)
    assert response.items
    assert response.skipped["generate"] in (Reason.NO_TIME, Reason.NO_CAPACITY)
    assert response.ledger.left_ms < 0


@pytest.mark.parametrize("stage", ["connect", "store", "queue", "decode"])
def test_each_stage_slowed_past_the_deadline_is_named(make, stored, redis_server, release, stage):
    """The slow stage takes seconds; the answer must not wait for it."""
    put(stored, make_state(release))
    slow = faked(release)

    async def run():
        async with proxied(redis_server) as proxy:
            store = Store(proxy.url, timeout_s=2.0, cache_bytes=0)
            # Where the decoder is the slow one the state is at hand: nothing else may take the time.
            decoding = stage in ("queue", "decode")
            recall = make(Shelf(make_state(release)) if decoding else store, Loaded(slow if decoding else release))
            recall.decoder.usual.s = 1e-6
            if stage in ("connect", "store"):
                if stage == "store":
                    await recall.answer(RecallRequest(user_id="u1"), long())
                proxy.delay_s = 3.0
            blocker = None
            if stage == "queue":
                blocker = asyncio.create_task(recall.decoder.decode(slow, {}, Deadline(3.0)))
                await asyncio.to_thread(slow.decoder.running.wait, 5)
            response = await recall.answer(RecallRequest(user_id="u1"), Deadline(0.25))
            if blocker is not None:
                blocker.cancel()
            await store.close()
            return response

    response = asyncio.run(run())
    assert response.ledger.total_ms < 2500, "it waited for the slow stage"
    assert response.items
    if stage in ("connect", "store"):
        assert response.assets[STATE].reason is Reason.STORE_TIMEOUT
    else:
        assert response.skipped["generate"] in (Reason.DECODE_TIMEOUT, Reason.NO_CAPACITY, Reason.NO_TIME)


def test_a_switch_under_load_mixes_no_answer(plan, release, other):
    """Requests run while the registry's pointer goes back and forth; each answer is wholly of one release."""
    users = [f"user {number}" for number in range(20)]
    homes = [release if number % 2 else other for number in range(20)]
    states = [make_state(home, user) for user, home in zip(users, homes, strict=True)]
    want = {}
    for made in (release, other):
        for user, state in zip(users, states, strict=True):
            own = state if state.release == made.id else None
            want[user, made.id] = decoded(made, own, own.bucket if own else 0)
    releases = Releases(lambda: None)
    releases.loaded = Loaded(release)
    recall = Recall(plan, Shelf(*states), releases, now_ms=lambda: NOW_MS)

    async def switch():
        while True:
            for loaded in (Loaded(other, release), Loaded(release, other), Loaded(other), Loaded(release)):
                releases.loaded = loaded
                await asyncio.sleep(0)

    async def one(number, user):
        for _ in range(number % 7):
            await asyncio.sleep(0)  # so that requests of one crowd meet different releases
        return await recall.answer(RecallRequest(user_id=user, k=20), long())

    async def load():
        switcher = asyncio.create_task(switch())
        answers = []
        for _ in range(10):
            answers += await asyncio.gather(*(one(number, user) for number, user in enumerate(users)))
        switcher.cancel()
        return answers

    answers = asyncio.run(load())
    recall.decoder.close()
    assert {answer.release for answer in answers} == {release.id, other.id}
    for answer in answers:
        made = release if answer.release == release.id else other
        assert answer.rung is Rung.GENERATE
        assert numbers(made, answer) == want[answer.user_id, answer.release]


def test_explain_tries_every_rung_of_the_same_case(make, release):
    recall = make(Shelf(make_state(release), make_candidates(release)))
    request = RecallRequest(user_id="u1", k=5)
    explanation = asyncio.run(recall.explain(request, long()))
    answer = asyncio.run(recall.answer(request, long()))
    by_rung = {rung.rung: rung for rung in explanation.rungs}
    assert list(by_rung) == [Rung.GENERATE, Rung.NEARLINE, Rung.COHORT, Rung.POPULAR]
    assert by_rung[Rung.GENERATE].items == answer.items
    assert [len(rung.items) for rung in explanation.rungs] == [5, 4, 5, 5]
    assert explanation.assets.keys() == answer.assets.keys()
    assert explanation.window[0] == release.catalogue.item_ids[make_state(release).items[0]]
    named = {item.item_id for rung in explanation.rungs for item in rung.items}
    assert named <= set(explanation.titles)


def test_explain_of_a_stranger_and_without_a_release(make, release):
    explanation = asyncio.run(make(Shelf()).explain(RecallRequest(user_id="stranger"), long()))
    assert explanation.bucket == "everybody"
    assert explanation.window == []
    assert explanation.rungs[1].reason is Reason.NO_CANDIDATES
    nothing = asyncio.run(make(Shelf(), Loaded()).explain(RecallRequest(user_id="stranger"), long()))
    assert nothing.release == ""


def test_the_ledger_adds_up(make, release):
    recall = make(Shelf(make_state(release)))
    ledgers = [ask(recall).ledger for _ in range(10)]
    ledger = ledgers[0]
    assert set(ledger.stages_ms) == {"store", "queue", "decode", "build"}
    # A stall between the last mark and the total is in the total alone: it does not meet every request.
    assert min(abs(sum(each.stages_ms.values()) - each.total_ms) for each in ledgers) < 0.5
    assert ledger.left_ms == pytest.approx(ledger.budget_ms - ledger.total_ms)
    assert ledger.saved_ms == {STATE: pytest.approx(release.usual_s[STATE] * 1000)}


def test_fake_graphs_are_not_needed_for_what_is_skipped(make, release):
    graph = FakeGraph(scores=[1.0, 0.5, 0.0])
    import dataclasses

    recall = make(Shelf(), Loaded(dataclasses.replace(release, decoder=graph)))
    recall.decoder.usual.s = 100.0
    assert ask(recall).skipped["generate"] is Reason.NO_TIME
    assert graph.runs == 0
