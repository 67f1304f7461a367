"""A data set as arrays: users' events in time order, with items and users as numbers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from schemas.event import Event
from schemas.names import Kind
from schemas.release import UNKNOWN_BUCKET

T = TypeVar("T")
Ints = NDArray[np.int64]
MAX_VALIDATION = 1_000
EVERYBODY = "everybody"
NUM_LOCAL, MIN_WITH_LOCAL = 3, 6


@dataclass(frozen=True)
class Histories:
    """Events of all users, user by user, each in (at, event_id) order.

    ``start`` [users + 1] says where a user's events are; ``session`` numbers the sessions of all users in order.
    """

    users: list[str]
    start: Ints
    item: Ints
    kind: Ints
    at: Ints
    session: Ints

    @property
    def user(self) -> Ints:
        """The user's number of each event."""
        return np.repeat(np.arange(len(self.users)), np.diff(self.start))

    def only(self, kept: NDArray[np.bool_]) -> Histories:
        """The events ``kept`` [events]; every user stays, perhaps without events."""
        before = np.r_[0, np.cumsum(kept)]
        _, session = np.unique(self.session[kept], return_inverse=True)
        return Histories(
            self.users, before[self.start], self.item[kept], self.kind[kept], self.at[kept], session.astype(np.int64)
        )

    @property
    def session_start(self) -> Ints:
        """Where each event's session begins."""
        first = np.flatnonzero(np.r_[True, np.diff(self.session) != 0])
        return first[self.session]


@dataclass(frozen=True)
class Case:
    """One request to answer: what was known, and what the user then took."""

    user: str
    bucket: int
    at: int
    window: Ints  # places in Histories are gone: item numbers, oldest first
    kinds: Ints
    times: Ints
    target: Ints
    local: list[tuple[int, int, int]]  # item, kind, at: known on the device only


@dataclass(frozen=True)
class Buckets:
    """Profile buckets by number, and the users in them."""

    names: list[str]
    users: dict[str, int]

    def of(self, user: str) -> int:
        """The user's bucket; 0 when nothing is known."""
        return self.users.get(user, UNKNOWN_BUCKET)


def read_buckets(folder: Path) -> Buckets:
    """Bucket 0 is everybody; the others in the order of their names."""
    told = pl.read_parquet(folder / "profiles.parquet")
    names = [EVERYBODY, *sorted(set(told["bucket"]) - {EVERYBODY})]
    number = {name: place for place, name in enumerate(names)}
    return Buckets(names, {user: number[bucket] for user, bucket in told.select("user_id", "bucket").iter_rows()})


def read_histories(folder: Path, number: dict[str, int]) -> Histories:
    """The training events, items numbered by ``number``."""
    events = pl.read_parquet(folder / "events.parquet").sort("user_id", "at", "event_id")
    users = events["user_id"].unique(maintain_order=True).to_list()
    counts = events.group_by("user_id", maintain_order=True).len()["len"].to_numpy()
    new = (events["user_id"] != events["user_id"].shift(1)) | (events["session"] != events["session"].shift(1))
    return Histories(
        users,
        np.r_[0, np.cumsum(counts)].astype(np.int64),
        events["item_id"].replace_strict(number, return_dtype=pl.Int64).to_numpy(),
        events["kind"].replace_strict({str(kind): kind.number for kind in Kind}, return_dtype=pl.Int64).to_numpy(),
        events["at"].to_numpy(),
        np.cumsum(new.fill_null(True).to_numpy()) - 1,
    )


def hold_out(histories: Histories, buckets: Buckets, window: int, seed: int) -> tuple[Histories, list[Case]]:
    """Take the last session of up to 1,000 users away for validation: never trained on, and never a target.

    Users with a single session keep it.
    """
    rng = np.random.default_rng(seed)
    last = histories.session_start[histories.start[1:] - 1]
    able = np.flatnonzero(last > histories.start[:-1])
    chosen = np.sort(rng.permutation(able)[: min(MAX_VALIDATION, max(1, len(able) // 2))])
    gone = np.zeros(len(histories.item), bool)
    cases = []
    for user in chosen:
        begin, end = int(last[user]), int(histories.start[user + 1])
        gone[begin:end] = True
        places = range(begin, end)
        first = max(int(histories.start[user]), begin - window)
        cases.append(_case(histories, buckets, int(user), slice(first, begin), rng.permutation(places)))
    return histories.only(~gone), cases


def _case(histories: Histories, buckets: Buckets, user: int, seen: slice, taken: Ints) -> Case:
    """``taken`` are the places of the session that is asked for, in any order; the first few are on the device."""
    _, first = np.unique(histories.item[taken], return_index=True)
    places = taken[np.sort(first)]
    num_local = NUM_LOCAL if len(places) >= MIN_WITH_LOCAL else 0
    name = histories.users[user]
    return Case(
        name,
        buckets.of(name),
        int(histories.at[seen.stop]),
        histories.item[seen],
        histories.kind[seen],
        histories.at[seen],
        histories.item[places[num_local:]],
        [(int(histories.item[p]), int(histories.kind[p]), int(histories.at[p])) for p in places[:num_local]],
    )


class Target(msgspec.Struct):
    """A line of ``targets.jsonl``."""

    user_id: str
    at: int
    items: list[str]
    local_events: list[Event]


def read_targets(
    folder: Path, histories: Histories, number: dict[str, int], buckets: Buckets, window: int
) -> list[Case]:
    """The held-back targets, each with the user's window as it is just before."""
    replayed: dict[str, list[Event]] = {}
    for event in _lines(folder / "replay.jsonl", Event):
        replayed.setdefault(event.user_id, []).append(event)
    known = {user: place for place, user in enumerate(histories.users)}
    cases = []
    for target in _lines(folder / "targets.jsonl", Target):
        place = known.get(target.user_id)
        begin, end = (0, 0) if place is None else histories.start[place : place + 2]
        trained = slice(max(int(begin), int(end) - window), int(end))
        before = [event for event in replayed.get(target.user_id, []) if event.at < target.at]
        cases.append(_target_case(target, buckets, number, _joined(histories, trained, before, number)[:, -window:]))
    return cases


def _joined(histories: Histories, trained: slice, before: list[Event], number: dict[str, int]) -> Ints:
    """Items, kinds and times [3, events] of the training events and the replayed ones."""
    replayed = [(number[event.item_id], event.kind.number, event.at) for event in before]
    old = np.stack([histories.item[trained], histories.kind[trained], histories.at[trained]])
    return np.concatenate([old, np.array(replayed, np.int64).reshape(-1, 3).T], axis=1)


def _target_case(target: Target, buckets: Buckets, number: dict[str, int], seen: Ints) -> Case:
    local = [(number[event.item_id], event.kind.number, event.at) for event in target.local_events]
    wanted = np.array([number[item] for item in target.items], np.int64)
    return Case(target.user_id, buckets.of(target.user_id), target.at, seen[0], seen[1], seen[2], wanted, local)


def _lines(path: Path, kind: type[T]) -> list[T]:
    decoder = msgspec.json.Decoder(kind)
    with path.open("rb") as file:
        return [decoder.decode(line) for line in file]
