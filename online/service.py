"""One request, from the look-up to the answer. Read ``Recall.answer`` top to bottom."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from online import ladder
from online.case import CANDIDATES, PROMPT, STATE, USED, Case, open_case
from online.deadline import Deadline
from online.decoder import Decoder
from online.door import Door
from online.lanes import Lanes
from online.metrics import Metrics
from online.model_metrics import ModelMetrics
from online.releases import Loaded, Releases
from online.store import Found
from schemas.api import AssetReport, Explanation, Item, Ledger, RecallRequest, RecallResponse, RungAnswer
from schemas.names import Reason, Rung, State
from schemas.plan import Plan


class Finder(Protocol):
    """What the service needs of a store."""

    async def find(self, user_id: str, deadline: Deadline) -> Found:
        """The user's stored values, or why there are none; never raises for what the store does."""
        ...

    def remembered(self, user_id: str, fault: tuple[State, Reason]) -> Found:
        """What is known of the user without asking."""
        ...


def wall_ms() -> int:
    """Now, in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class Attempt:
    """What one rung gave."""

    reason: Reason
    items: list[Item]


class Recall:
    """The service without HTTP. ``answer`` and ``explain`` never raise for data reasons."""

    def __init__(
        self,
        plan: Plan,
        store: Finder,
        releases: Releases,
        *,
        metrics: Metrics | None = None,
        now_ms: Callable[[], int] = wall_ms,
    ) -> None:
        self._ladder = plan.online.ladder
        self._rules = {name: asset.freshness for name, asset in plan.assets.items()}
        self._store = store
        self._now_ms = now_ms
        self._usual = {rung: ladder.Usual() for rung in Rung}  # but for ``generate``, which each lane knows
        self.slack_s = float(plan.online.slack)
        self.releases = releases
        self.door = Door(store_timeout_s=float(plan.online.store_timeout))
        self.lanes = Lanes(plan.online, lambda: self.door.turns.longest_s)
        self.decoder = self.lanes.small
        self.metrics = metrics or Metrics()
        self.model_metrics = ModelMetrics(self.metrics.registry)

    async def answer(self, request: RecallRequest, deadline: Deadline, *, bulk: bool = False) -> RecallResponse:
        """The best answer that the deadline allows. ``bulk``: it is one of many sent together."""
        lane = self.lanes.of(request, bulk=bulk)
        hurried = not self.door.admits(request.value, deadline.remaining())
        deadline.note("door", admitted=not hurried)
        case = self._recalled(request) if hurried else await self._look_up(request, deadline)
        deadline.mark("store")
        if case is None:
            return self._nothing_loaded(request, deadline)
        self.releases.used(case.release)
        order, skipped = self._choose(case, deadline, lane, hurried)
        for rung in order:
            attempt = await self._attempt(rung, case, deadline, lane)
            if attempt.reason is Reason.OK:
                return self._respond(case, rung, attempt.items, skipped, deadline)
            skipped[rung] = attempt.reason
        return self._respond(case, Rung.NONE, [], skipped, deadline)

    async def explain(self, request: RecallRequest, deadline: Deadline) -> Explanation:
        """The same look-up and the same rungs, each of them tried."""
        case = await self._look_up(request, deadline)
        if case is None:
            return Explanation(
                user_id=request.user_id,
                release="",
                assets={},
                bucket="",
                window=[],
                watermark=None,
                rungs=[],
                titles={},
            )
        rungs: list[RungAnswer] = []
        lane = self.lanes.of(request)
        for rung, reason in self._ready(case, lane.room(request.value, deadline)).items():
            begun = deadline.elapsed()
            attempt = Attempt(reason, [])
            if reason is Reason.OK:
                attempt = await self._attempt(rung, case, deadline, lane)
            rungs.append(RungAnswer(rung, attempt.reason, attempt.items, (deadline.elapsed() - begun) * 1000))
        return self._explanation(case, rungs)

    async def _look_up(self, request: RecallRequest, deadline: Deadline) -> Case | None:
        found = await self._store.find(request.user_id, deadline)
        by = "cache" if found.cached and found.fault is None else "none" if found.fault else "redis"
        self.metrics.looked_up(by)
        if deadline.trail is not None:
            deadline.trail.facts["looked_up"] = by
        return self._open(request, found)

    def _recalled(self, request: RecallRequest) -> Case | None:
        """At once, from what this process remembers: the way through the store and the decoder would take too long."""
        self.metrics.looked_up("none")
        return self._open(request, self._store.remembered(request.user_id, (State.UNAVAILABLE, Reason.NO_CAPACITY)))

    def _open(self, request: RecallRequest, found: Found) -> Case | None:
        case = open_case(request, found, self._loaded(), self._rules, self._now_ms())
        if case is not None and case.ahead:
            self.metrics.ahead()
        return case

    def _loaded(self) -> Loaded:
        loaded = self.releases.loaded
        if loaded.current is not None:
            for lane in self.lanes.all:
                lane.usual.s = lane.usual.s or loaded.current.usual_s["decode"]
        return loaded

    def _ready(self, case: Case, room: Reason) -> dict[Rung, Reason]:
        ready = case.readiness(room)
        return {rung: ready[rung] for rung in self._ladder}

    def _choose(
        self, case: Case, deadline: Deadline, lane: Decoder, hurried: bool
    ) -> tuple[list[Rung], dict[Rung, Reason]]:
        usual = self._usual | {Rung.GENERATE: lane.usual}
        usual_s = {rung: each.s for rung, each in usual.items()}
        room = Reason.NO_CAPACITY if hurried else lane.room(case.request.value, deadline)
        order, skipped = ladder.choose(self._ladder, self._ready(case, room), usual_s, deadline.remaining())
        for rung, reason in skipped.items():
            if reason is Reason.NO_TIME:
                usual[rung].skipped()
        return order, skipped

    async def _attempt(self, rung: Rung, case: Case, deadline: Deadline, lane: Decoder) -> Attempt:
        if rung is Rung.GENERATE:
            decoded = await lane.decode(case.release, case.feed(), deadline, case.request.value)
            deadline.mark("decode")
            deadline.split("decode", "queue", decoded.queue_s)
            if deadline.trail is not None:
                deadline.trail.facts["batch_size"] = decoded.batch_size
            if decoded.reason is not Reason.OK:
                return Attempt(decoded.reason, [])
            numbers, scores = case.limits.there(decoded.items, decoded.scores)
            items = case.release.items(numbers[: case.k], scores[: case.k])
        else:
            items = case.items(rung)
        return Attempt(Reason.OK if items else Reason.NOTHING_ALLOWED, items)

    def _respond(
        self, case: Case, rung: Rung, items: list[Item], skipped: dict[Rung, Reason], deadline: Deadline
    ) -> RecallResponse:
        better = self._ladder[: self._ladder.index(rung)] if rung in self._ladder else self._ladder
        response = RecallResponse(
            user_id=case.request.user_id,
            items=items,
            rung=rung,
            release=case.release.id,
            assets=case.assets,
            skipped={str(name): skipped[name] for name in better},
            ledger=_ledger(deadline, _saved_ms(case, rung)),
        )
        self.metrics.answered(response, deadline, self.slack_s)
        self.model_metrics.offer(case.release, rung, case.bucket, items)
        return response

    def _nothing_loaded(self, request: RecallRequest, deadline: Deadline) -> RecallResponse:
        response = RecallResponse(
            user_id=request.user_id,
            items=[],
            rung=Rung.NONE,
            release="",
            assets={name: AssetReport(State.UNAVAILABLE, Reason.NOT_LOADED) for name in (STATE, PROMPT, CANDIDATES)},
            skipped={str(rung): Reason.NOT_LOADED for rung in self._ladder},
            ledger=_ledger(deadline, {}),
        )
        self.metrics.answered(response, deadline, self.slack_s)
        return response

    def _explanation(self, case: Case, rungs: list[RungAnswer]) -> Explanation:
        catalogue = case.release.catalogue
        numbers = case.state.items if case.state else []
        window = [catalogue.item_ids[n] for n in numbers if 0 <= n < len(catalogue.item_ids)]
        named = {*window, *(item.item_id for rung in rungs for item in rung.items)}
        return Explanation(
            user_id=case.request.user_id,
            release=case.release.id,
            assets=case.assets,
            bucket=case.release.profiles.buckets[case.bucket],
            window=window,
            watermark=case.state.watermark if case.state else None,
            rungs=rungs,
            titles={item_id: catalogue.titles[case.release.item_numbers[item_id]] for item_id in named},
        )


def _ledger(deadline: Deadline, saved_ms: dict[str, float]) -> Ledger:
    deadline.mark("build")
    total_s = deadline.elapsed()
    return Ledger(
        total_ms=total_s * 1000,
        budget_ms=deadline.budget_s * 1000,
        left_ms=(deadline.budget_s - total_s) * 1000,
        stages_ms={name: seconds * 1000 for name, seconds in deadline.stages_s.items()},
        saved_ms=saved_ms,
    )


def _saved_ms(case: Case, rung: Rung) -> dict[str, float]:
    """Only what this answer really used: a list saves nothing of the encoders' work."""
    if rung is not Rung.GENERATE:
        return {}
    usual_s = case.release.usual_s
    return {name: usual_s[name] * 1000 for name in (STATE, PROMPT) if case.assets[name].state in USED}
