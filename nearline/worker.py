"""The worker: windows in, states and candidate lists out. The offsets are committed after the writes, never before."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from threading import Event as Flag
from typing import Protocol

from nearline.broker import Source
from nearline.candidates import MAX_BATCH, Allowance, Waiting
from nearline.held import HeldWriter
from nearline.metrics import Tally
from nearline.patience import Patience
from nearline.serving import Makers, Serving
from nearline.states import Made, Reading, Sorted, dead_letter, sort_out
from nearline.stepping import ROW_CACHE_BYTES
from nearline.store import Forgotten, StateStore, UnreachedError, Written
from nearline.written import Place
from schemas.cli import say
from schemas.errors import StoreError
from schemas.state import Candidates, IntentState
from schemas.topics import WINDOWS_TOPIC

POLL_S = 0.1
PATIENT_EVERY_S = 0.5
BACKLOG = 64
"""A poll with more records than this is a backlog: encoding comes before candidate lists."""
SLICE = 32
"""Users who are encoded again between two polls: new windows wait for these, some ten milliseconds."""
MAX_PAUSE_S = 5.0
LAG_EVERY_S = 5.0


class Follower(Protocol):
    """Says when to change the releases (``nearline.following``)."""

    def newer(self, in_use: Serving) -> Serving | None:
        """What to change to, loaded; None to stay."""
        ...


class Worker:
    """One worker of the group. ``run`` returns when ``stop`` is set, with nothing half done."""

    def __init__(
        self,
        source: Source,
        store: StateStore,
        follower: Follower,
        serving: Serving,
        *,
        candidates_per_s: float,
        tally: Tally,
        stop: Flag,
        row_cache_bytes: int = ROW_CACHE_BYTES,
    ) -> None:
        """``row_cache_bytes``: of the memory for rows of long windows, by release."""
        self._source = source
        self._store, self._writer = store, HeldWriter(store)
        self._follower = follower
        self._allowance = Allowance(candidates_per_s)
        self._waiting = Waiting()
        self._tally = tally
        self._stop = stop
        self._attempt = Patience(stop, StoreError, 0.1, MAX_PAUSE_S)
        self._lag_at, self._cut_off = 0.0, False
        self._forgotten: Sequence[Forgotten] = ()
        self._patient_at = 0.0
        self._again: list[Reading] = []  # read again and not yet encoded again, the first one last
        self._row_cache_bytes = row_cache_bytes
        self._use(Makers(serving, row_cache_bytes=row_cache_bytes))

    def remember(self, forgotten: Sequence[Forgotten]) -> None:
        """Mark the forgotten before anything is written: Redis may be new, and the topic may hold older windows."""
        self._forgotten = forgotten
        self._attempt(lambda: self._writer.write(forgotten, ()))

    def run(self, *, once: bool = False, until_idle_s: float | None = None) -> None:
        """Work until told to stop; or, with ``once``, to the end of the topic; or until so long without a record."""
        last_record_at = time.monotonic()
        while not self._stop.is_set():
            if (serving := self._follower.newer(self._makers.serving)) is not None:
                say(f"{serving} from now on; the users concerned are encoded again")
                self._use(Makers(serving, self._makers, row_cache_bytes=self._row_cache_bytes))
            size = self._step()
            if self._encode_again() or size:
                last_record_at = time.monotonic()
            if size < BACKLOG:
                self._make_lists()
            self._retry_held()
            if once and not size and self._attempt(self._at_the_end):
                return
            if until_idle_s is not None and time.monotonic() - last_record_at >= until_idle_s:
                return
            self._watch_lag()

    def _at_the_end(self) -> bool:
        through = self._source.lag() == 0 and not self._source.left()
        return through and not self._writer.num_held and self._keeps(self._store.written_to.lost)

    def _use(self, makers: Makers) -> None:
        self._makers = makers
        self._waiting.keep(makers.split.of)
        self._again = []
        self._source.use(makers.split, makers.serving.goes_on)
        self._tally.use(makers.split)

    def _step(self) -> int:
        """Poll, encode, write, commit. Returns how many records there were."""
        wait_s = 0.0 if self._is_hurried() else POLL_S
        records = self._attempt(lambda: self._source.poll(wait_s)) or []
        if not records:
            return 0
        batch = sort_out(records, WINDOWS_TOPIC)
        windows = [one for one in batch.windows.values() if self._store.keeps(one.record.timestamp)]
        self._tally.batch(len(windows))
        made = self._makers.states(windows)
        batch.letters += [dead_letter(reading.record, reason, WINDOWS_TOPIC) for reading, reason in made.refused]
        written = self._attempt(lambda: self._write(batch, made))
        if written is not None:
            self._count(batch, made, written)
            self._commit()
            self._tally.add(records=len(records))
        return len(records)

    def _is_hurried(self) -> bool:
        """Users wait to be encoded again; but now and then a poll is given time, for the group's affairs need it."""
        now = time.monotonic()
        if not (self._again or self._source.left()) or now - self._patient_at >= PATIENT_EVERY_S:
            self._patient_at = now
            return False
        return True

    def _encode_again(self) -> bool:
        """A few of the users whose states are of other releases, or lost; False when there are none left.

        New windows wait for no more than this. Dead letters were sent when the records came first.
        """
        if not self._again:
            records = self._attempt(self._source.reread)
            if records is None:
                return False
            batch = sort_out(records, WINDOWS_TOPIC)
            self._forget_again(batch)
            self._again = sorted(filter(self._is_due, batch.windows.values()), key=activity)
        due, self._again = self._again[-SLICE:], self._again[:-SLICE]
        made = self._makers.states(due)
        written = self._attempt(lambda: self._writer.write((), _numbered(made)))
        if written is None:
            return False
        self._waiting.add(_numbered(made))
        self._tally.add(states=written.written, stale=written.stale, reencoded=len(due))
        self._tally.add(rows=made.num_rows, rows_whole=made.num_whole)
        if not self._again:
            self._source.reread_done()
            self._tally.left.set(self._source.left())
            self._commit()
        return True

    def _is_due(self, reading: Reading) -> bool:
        return not self._makers.is_done(reading) and self._store.keeps(reading.record.timestamp)

    def _forget_again(self, batch: Sorted) -> None:
        """A Redis that was lost has no markers: they must be there before anything older is written."""
        forgotten = [Forgotten(user_id, offset) for user_id, offset in batch.forgotten.items()]
        self._attempt(lambda: self._writer.write(forgotten, ()))

    def _commit(self) -> None:
        self._tally.held.set(self._writer.num_held)
        if not self._writer.num_held and self._attempt(lambda: self._keeps(self._store.written_to.note)):
            self._attempt(self._source.commit, tries=1)

    def _keeps(self, look: Callable[[Mapping[int, Place]], Mapping[int, int]]) -> bool:
        """Whether Redis still has what was written; what it lost is read and written again (``nearline.written``)."""
        places = self._source.places()
        lost = look(places)
        if lost:
            say(f"Redis lost states: {len(lost)} partitions are read again")
            self._writer.write(self._forgotten, ())
            self._source.rewind(lost)
            self._store.written_to.begin({number: place for number, place in places.items() if number in lost})
            self._again = []
            self._tally.add(lost_partitions=len(lost))
        return not lost

    def _retry_held(self) -> None:
        if self._writer.num_held and (written := self._attempt(self._writer.retry)) is not None:
            self._tally.add(states=written.written, stale=written.stale)
            self._commit()

    def _write(self, batch: Sorted, made: Made) -> Written:
        """Everything a batch leaves behind. Doing it twice changes nothing, but that a dead letter comes twice."""
        self._source.send_letters(batch.letters)
        forgotten = [Forgotten(user_id, offset) for user_id, offset in batch.forgotten.items()]
        return self._writer.write(forgotten, _numbered(made))

    def _count(self, batch: Sorted, made: Made, written: Written) -> None:
        now_ms = time.time() * 1000
        for state, reading in made.states:
            if state.arrived_at and not reading.record.reread:
                self._tally.visible(now_ms - state.arrived_at)
        self._waiting.drop(batch.forgotten)
        self._makers.forget(batch.forgotten)
        self._waiting.add(_numbered(made))
        self._tally.add(
            states=written.written,
            stale=written.stale,
            dead_letters=len(batch.letters),
            unknown_items=made.num_unknown,
            rows=made.num_rows,
            rows_whole=made.num_whole,
            forgotten=len(batch.forgotten),
        )

    def _make_lists(self) -> None:
        chosen = self._waiting.take(self._allowance.take(min(MAX_BATCH, len(self._waiting))))
        if chosen:
            lists = self._makers.lists(chosen)
            written = self._attempt(lambda: self._write_lists(lists))
            self._tally.add(candidates=written.written if written else 0)

    def _write_lists(self, lists: Sequence[tuple[Candidates, int]]) -> Written:
        """A list whose node is out of reach is left out: the user's next state makes a new one."""
        try:
            return self._store.write_candidates(lists)
        except UnreachedError as error:
            return error.written

    def _watch_lag(self) -> None:
        """Measure the lag now and then, and see that Redis keeps what it has.

        A poll of a broker that is gone is just empty: here it shows.
        """
        if time.monotonic() - self._lag_at < LAG_EVERY_S:
            return
        with suppress(StoreError):  # one that is out of reach is told of at the next write
            self._keeps(self._store.written_to.lost)
        try:
            self._tally.lag.set(self._source.lag() or 0)
        except StoreError as error:
            if not self._cut_off:
                say(f"{error} Nothing is lost; waiting for it.")
            self._cut_off = True
        else:
            if self._cut_off:
                say("it works again")
            self._cut_off = False
        self._lag_at = time.monotonic()


def activity(reading: Reading) -> tuple[int, int]:
    """Of users who were active at about the same time, those with the most events are worth the most."""
    return len(reading.window.events), reading.watermark


def _numbered(made: Made) -> list[tuple[IntentState, int]]:
    """States with their sequences: the offsets of their records."""
    return [(state, reading.record.offset) for state, reading in made.states]
