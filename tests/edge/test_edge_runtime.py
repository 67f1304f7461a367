"""What an app sees: numbers, reasons, and never somebody else's data."""

from __future__ import annotations

import math
import os
import signal
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from edge.bundle import Bundle
from edge.encoder import OnnxEncoder
from edge.features import features
from edge.names import EdgeReason
from edge.runtime import Clock, Edge
from schemas.api import PromptEmbedding
from schemas.names import Reason

NOW_MS = 1_772_359_500_123
PATIENT_MS = 60_000.0


@pytest.fixture
def make_edge(bundle: Bundle):
    made: list[Edge] = []

    def make(**given) -> Edge:
        given = {"bundle": bundle, "consent": True, "clock": Clock(now_ms=lambda: NOW_MS), **given}
        edge = Edge(given.pop("bundle"), **given)
        edge.set_user("u1", 1)
        made.append(edge)
        return edge

    yield make
    for edge in made:
        edge.close()


def rows_of(prompt: PromptEmbedding | EdgeReason) -> np.ndarray:
    assert isinstance(prompt, PromptEmbedding), prompt
    return np.frombuffer(prompt.rows, "<f4").reshape(prompt.num_rows, -1)


def default_rows(bundle: Bundle, bucket: int) -> np.ndarray:
    return np.asarray(bundle.prompt_defaults[bucket])


def encoded(bundle: Bundle, events, bucket: int) -> np.ndarray:
    encoder = OnnxEncoder(bundle.graph)
    return encoder.run(features(events, bundle.codes, bundle.sizes, bucket, NOW_MS).feeds, encoder.switch())[0]


def test_no_events_are_the_default_rows_of_the_bucket(make_edge, bundle) -> None:
    edge = make_edge()
    assert np.array_equal(rows_of(edge.prompt(PATIENT_MS)), default_rows(bundle, 1))
    assert edge.prompts == {EdgeReason.NO_EVENTS: 1}


@pytest.mark.parametrize("more", [-1, 0, 1, 40])
def test_the_newest_events_are_encoded(make_edge, bundle, event, more: int) -> None:
    edge, most = make_edge(), bundle.sizes.local_events
    events = [event(number) for number in range(most + more)]
    assert {edge.track(one) for one in reversed(events)} == {EdgeReason.OK}
    made = edge.prompt(PATIENT_MS)
    assert np.allclose(rows_of(made), encoded(bundle, events[-most:], 1), atol=1e-6)
    assert made.release == bundle.release


def test_unknown_items_are_dropped_and_counted(make_edge, bundle, event) -> None:
    edge = make_edge()
    assert edge.track(event(1)) is EdgeReason.OK
    assert edge.track(event(2, item_id="no such item")) is EdgeReason.UNKNOWN_ITEM
    assert np.allclose(rows_of(edge.prompt(PATIENT_MS)), encoded(bundle, [event(1)], 1), atol=1e-6)
    assert edge.events == {EdgeReason.OK: 1, EdgeReason.UNKNOWN_ITEM: 1}


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (None, EdgeReason.BAD_EVENT),
        ({"event_id": "e"}, EdgeReason.BAD_EVENT),
        ({"at": NOW_MS // 1000}, EdgeReason.BAD_EVENT),
        ({"at": math.nan}, EdgeReason.BAD_EVENT),
        ({"kind": "sneeze"}, EdgeReason.BAD_EVENT),
        ({"item_id": ["a"]}, EdgeReason.BAD_EVENT),
        ({"user_id": "u2"}, EdgeReason.OTHER_USER),
    ],
)
def test_a_bad_event_is_a_reason_not_an_error(make_edge, event, bad, reason) -> None:
    edge = make_edge()
    given = event(0, **bad) if isinstance(bad, dict) and "event_id" not in bad else bad
    assert edge.track(given) is reason
    assert edge.events == {reason: 1}


def test_another_user_gets_nothing_of_the_one_before(make_edge, bundle, event) -> None:
    edge = make_edge()
    edge.track(event(1))
    assert np.array_equal(rows_of(edge.prompt(PATIENT_MS)), rows_of(edge.latest()))
    edge.set_user("u2", 0)
    assert edge.latest() is EdgeReason.NOT_MADE
    assert np.array_equal(rows_of(edge.prompt(PATIENT_MS)), default_rows(bundle, 0))


def test_the_same_user_again_keeps_the_events(make_edge, bundle, event) -> None:
    edge = make_edge()
    edge.track(event(1))
    edge.set_user("u1", 0)
    assert np.allclose(rows_of(edge.prompt(PATIENT_MS)), encoded(bundle, [event(1)], 0), atol=1e-6)


def test_forget_drops_all_and_keeps_nothing_new(make_edge, bundle, event) -> None:
    edge = make_edge()
    edge.track(event(1))
    edge.prompt(PATIENT_MS)
    edge.forget()
    assert edge.latest() is EdgeReason.NOT_MADE
    assert edge.track(event(2)) is EdgeReason.NO_USER
    assert np.array_equal(rows_of(edge.prompt(PATIENT_MS)), default_rows(bundle, 0))


def test_consent_is_off_until_given_and_withdrawing_it_drops_all(make_edge, bundle, event) -> None:
    assert make_edge(consent=False).prompt() is EdgeReason.NO_CONSENT
    edge = make_edge()
    edge.track(event(1))
    edge.prompt(PATIENT_MS)
    edge.set_consent(False)
    assert edge.track(event(2)) is EdgeReason.NO_CONSENT
    assert edge.prompt() is EdgeReason.NO_CONSENT
    assert edge.latest() is EdgeReason.NOT_MADE
    edge.set_consent(True)
    assert np.array_equal(rows_of(edge.prompt(PATIENT_MS)), default_rows(bundle, 1))


@pytest.mark.parametrize(
    "change",
    [
        (lambda edge: edge.set_user("u2"), EdgeReason.USER_CHANGED),
        (lambda edge: (edge.set_user("u2"), edge.set_user("u1", 1)), EdgeReason.USER_CHANGED),
        (lambda edge: edge.forget(), EdgeReason.USER_CHANGED),
        (lambda edge: edge.set_consent(False), EdgeReason.NO_CONSENT),
    ],
)
def test_a_prompt_that_was_running_at_the_change_is_refused(make_edge, event, fake, zeros, change) -> None:
    act, reason = change
    edge = make_edge(load=fake(lambda _feeds: (act(edge), zeros)[1]))
    edge.track(event(1))
    assert edge.prompt(PATIENT_MS) is reason
    assert edge.latest() is EdgeReason.NOT_MADE


def test_age_is_from_the_reading_of_the_events_and_grows(make_edge, event, fake, zeros) -> None:
    now = SimpleNamespace(s=100.0)

    def takes_a_while(_feeds):
        now.s += 0.015
        return zeros

    clock = Clock(now_ms=lambda: NOW_MS, monotonic_s=lambda: now.s)
    edge = make_edge(clock=clock, load=fake(takes_a_while))
    edge.track(event(1))
    assert edge.prompt(PATIENT_MS).age_ms == 15
    now.s += 2.0
    assert edge.latest().age_ms == 2_015
    now.s += 58.0
    assert edge.latest() is EdgeReason.TOO_OLD


def test_a_bundle_past_its_age_is_not_used(make_edge, bundle, event) -> None:
    now_ms = bundle.made_at_ms + 30 * 86_400_000
    clock = Clock(now_ms=lambda: now_ms)
    old = make_edge(bundle=replace(bundle, usable_for_s=30 * 86_400 - 1), clock=clock)
    old.track(event(1))
    assert old.prompt(PATIENT_MS) is EdgeReason.TOO_OLD
    just = make_edge(bundle=replace(bundle, usable_for_s=30 * 86_400), clock=clock)
    assert isinstance(just.prompt(PATIENT_MS), PromptEmbedding)


def test_without_a_bundle_everything_is_not_loaded(make_edge, event) -> None:
    edge = make_edge(bundle=None)
    edge.warm()
    assert edge.track(event(1)) is EdgeReason.NOT_LOADED
    assert edge.prompt() is EdgeReason.NOT_LOADED


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_loads_its_own_session(make_edge, event) -> None:
    edge = make_edge()
    edge.track(event(1))
    before = rows_of(edge.prompt(PATIENT_MS))
    with edge._lock:
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(30)  # a child that waits for a lock or a thread of its parent must end too
            made = edge.prompt(PATIENT_MS)
            os._exit(0 if isinstance(made, PromptEmbedding) and np.array_equal(rows_of(made), before) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_words_shared_with_the_server_are_the_same() -> None:
    shared = {reason.name: reason.value for reason in Reason}
    same = {reason.name for reason in EdgeReason if shared.get(reason.name) == reason.value}
    assert same == {"OK", "NOT_LOADED", "TOO_OLD", "NOT_FINITE", "BAD_SHAPE"}
    assert {reason.name for reason in EdgeReason} & set(shared) == same
