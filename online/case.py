"""Everything about one request that is known before an item is chosen. Pure: no clock, no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from online import judge, takeover
from online.graph import Array
from online.limits import Limits, limits_of
from online.release import Release
from online.releases import Loaded
from online.store import Found
from schemas.api import AssetReport, Item, RecallRequest
from schemas.freshness import Freshness, age_s
from schemas.names import Reason, Rung, State
from schemas.release import UNKNOWN_BUCKET
from schemas.state import Candidates, IntentState

STATE, PROMPT, CANDIDATES = "intent_state", "prompt_embedding", "candidates"
GENERATOR, LISTS = "generator", "cohort_lists"
ALL_READY = dict.fromkeys(Rung, Reason.OK)
USED = (State.FRESH, State.STALE)
UNASKED = (State.UNAVAILABLE, State.TIMED_OUT)


@dataclass(frozen=True, slots=True)
class Case:
    """One request against one release. ``state`` and ``candidates`` are set only if they may be used."""

    request: RecallRequest
    release: Release
    bucket: int
    state: IntentState | None
    candidates: Candidates | None
    intent: Array  # float32 [1, R, d]: the state's rows, or the bucket's
    prompt: Array  # float32 [1, P, d]: the device's rows, or the bucket's
    limits: Limits
    assets: dict[str, AssetReport]
    ahead: bool  # a stored value is from the future: a clock is wrong somewhere

    @property
    def k(self) -> int:
        """No rung returns more than the decoder can."""
        return min(self.request.k, self.release.model.k_max)

    def feed(self) -> dict[str, Array]:
        """The decoder's inputs."""
        near = judge.neighbours(self.state, self.release.model)
        return self.release.decoder_feed(self.intent, self.prompt, near, (self.limits.exclude, self.limits.allow))

    def listed(self, rung: Rung) -> tuple[Array, Array]:
        """Item numbers and scores of a rung that needs no model, best first."""
        if rung is Rung.NEARLINE and self.candidates is not None:
            return judge.item_numbers(self.candidates.items), np.asarray(self.candidates.scores, np.float32)
        return self.release.cohorts.row(self._row(rung))

    def items(self, rung: Rung) -> list[Item]:
        """At most ``k`` items of such a rung, within the limits."""
        if self.limits.none and rung is not Rung.NEARLINE:
            return self.release.cohorts.first(self._row(rung), self.k, self.release.items)
        return self.release.items(*self.limits.pick(self.release, *self.listed(rung), self.k))

    def _row(self, rung: Rung) -> int:
        return self.bucket if rung is Rung.COHORT else UNKNOWN_BUCKET

    def readiness(self, generate: Reason) -> dict[Rung, Reason]:
        """Which rungs could answer. ``generate`` says whether the decoder has room.

        A user without a state is generated for from the bucket's rows. When the store can't be asked, that would be
        every user: the cohort list then says as much for less, unless the device sent a prompt.
        """
        ready = dict(ALL_READY)
        if self.limits.nothing:
            return dict.fromkeys(Rung, Reason.NOTHING_ALLOWED)
        known = self.assets[STATE].state not in UNASKED or self.assets[PROMPT].state in USED
        ready[Rung.GENERATE] = generate if known else self.assets[STATE].reason
        if self.candidates is None:
            reason = self.assets[CANDIDATES].reason
            ready[Rung.NEARLINE] = Reason.NO_CANDIDATES if reason is Reason.NO_STATE else reason
        if self.assets[LISTS].state is State.EXPIRED:
            # The list of everybody stays: nothing stands in for it, and an old list beats an empty page.
            ready[Rung.COHORT] = Reason.TOO_OLD
        elif not self.release.cohorts.filled[self.bucket]:
            ready[Rung.COHORT] = Reason.NO_CANDIDATES
        return ready


def open_case(
    request: RecallRequest, found: Found, loaded: Loaded, rules: Mapping[str, Freshness], now_ms: int
) -> Case | None:
    """Judge what was found and sent, and choose the release: the state's own if it is loaded, else the user's, which is
    the current one or the canary.

    None when no release is loaded.
    """
    if loaded.current is None:
        return None
    pair = found.pair
    state, state_report = judge.judge_state(pair and pair.state, request.user_id, rules[STATE], now_ms)
    own = loaded.of_state(state.release) if state is not None else None
    release = own or loaded.without_state(request.user_id) or loaded.current
    state, intent, state_report = _state_of(release, state, state_report)
    listed, list_report = judge.judge_candidates(pair and pair.candidates, request.user_id, rules[CANDIDATES], now_ms)
    listed, list_report = _candidates_of(release, listed, list_report)
    prompt, prompt_report = judge.prompt_rows(request.prompt, release, rules[PROMPT])
    bucket = _bucket(request, release, state)
    return Case(
        request=request,
        release=release,
        bucket=bucket,
        state=state,
        candidates=listed,
        intent=intent if intent is not None else release.arrays["intent_defaults"][bucket : bucket + 1],
        prompt=prompt if prompt is not None else release.arrays["prompt_defaults"][bucket : bucket + 1],
        limits=limits_of(request, release, loaded.gone.get(release.id)),
        assets={
            STATE: _explained(state_report, found),
            PROMPT: prompt_report,
            CANDIDATES: _explained(list_report, found),
            GENERATOR: _made_with(release, rules[GENERATOR], now_ms),
            LISTS: _made_with(release, rules[LISTS], now_ms),
        },
        ahead=any(value is not None and value.made_at > now_ms for value in (state, listed)),
    )


def _state_of(
    release: Release, state: IntentState | None, report: AssetReport
) -> tuple[IntentState | None, Array | None, AssetReport]:
    """The state and its rows if this release can use them, else the report that says why not."""
    if state is None:
        return None, None, report
    state = takeover.state_of(release, state)
    if state.release != release.id:
        return None, None, AssetReport(State.MISMATCHED, Reason.OTHER_RELEASE, report.age_s)
    rows, reason = judge.state_rows(state, release.model)
    if rows is None:
        return None, None, AssetReport(State.EMPTY, reason, report.age_s)
    return state, rows, report


def _candidates_of(
    release: Release, listed: Candidates | None, report: AssetReport
) -> tuple[Candidates | None, AssetReport]:
    """The list if it is of this release and whole, else the report that says why not."""
    if listed is None:
        return None, report
    listed = takeover.list_of(release, listed)
    if listed.release != release.id:
        return None, AssetReport(State.MISMATCHED, Reason.OTHER_RELEASE, report.age_s)
    if not listed.items:
        return None, AssetReport(State.EMPTY, Reason.NO_CANDIDATES, report.age_s)
    if len(judge.item_numbers(listed.items)) != len(listed.scores):
        return None, AssetReport(State.EMPTY, Reason.BAD_SHAPE, report.age_s)
    return listed, report


def _bucket(request: RecallRequest, release: Release, state: IntentState | None) -> int:
    """The state's bucket, else the profile's, else the one that the request names, else everybody."""
    if state is not None and 0 < state.bucket < release.model.num_buckets:
        return state.bucket
    known = release.profiles.users.get(request.user_id, UNKNOWN_BUCKET)
    if 0 < known < release.model.num_buckets:
        return known
    return release.bucket_numbers.get(request.context.get("bucket", ""), UNKNOWN_BUCKET)


def _made_with(release: Release, rule: Freshness, now_ms: int) -> AssetReport:
    """An asset that is part of the release is as old as the release."""
    age = age_s(release.made_at, now_ms)
    state = rule.judge(age)
    return AssetReport(state, Reason.TOO_OLD if state is State.EXPIRED else Reason.OK, age)


def _explained(report: AssetReport, found: Found) -> AssetReport:
    """Add why the store was not asked: a value from the cache is then used as STALE, an absent one is not MISSING."""
    if found.fault is None:
        return report
    state, reason = found.fault
    if report.state in USED:
        return AssetReport(State.STALE, reason, report.age_s)
    if report.state is State.MISSING:
        return AssetReport(state, reason)
    return report
