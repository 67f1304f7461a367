"""A shop's log, replayed for many more users than it has: baskets of replicas of its customers.

A replica is a customer with an id and a shift in time of its own. Laid over each other, a year of so many shifted
customers is at any moment a stream of baskets, each of a random customer's random replica: so this is what is drawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import msgspec
import numpy as np

from nearline.replay import lines
from schemas.errors import DataError
from schemas.event import Event, decode_event
from schemas.names import Kind

START_MS = 1_700_000_000_000
"""Event time of the replay's first event; what users did before is older."""
STRIDE = 1_000_003
"""Prime: user numbers in steps of it come in no order of the customers."""


class _Line(msgspec.Struct):
    """An event as it is sent: the contract's fields, without the defaults."""

    event_id: str
    user_id: str
    item_id: str
    kind: str
    at: int


@dataclass(frozen=True)
class Sent:
    """One event to send."""

    user_id: str
    at: int
    raw: bytes


class Log:
    """Customers and their baskets: what a customer did at one time."""

    def __init__(self, events: Sequence[Event]) -> None:
        """Raises ``DataError`` without any event."""
        if not events:
            raise DataError("the log holds no event", where="--log", mend="Name files of one JSON event a line.")
        ordered = sorted(events, key=lambda event: (event.user_id, event.at))
        self.baskets = [list(lines) for _, lines in groupby(ordered, key=lambda event: (event.user_id, event.at))]
        self.customers = sorted({event.user_id for event in events})
        self._first = {basket[0].user_id: basket[0] for basket in reversed(self.baskets)}

    @classmethod
    def read(cls, paths: Sequence[Path]) -> Log:
        """The log in files of one JSON event a line. Raises ``DataError`` for a bad line, by its number."""
        return cls([decode_event(raw, where) for where, raw in lines(paths)])

    @classmethod
    def made_up(cls, item_ids: Sequence[str], num_customers: int = 200, seed: int = 5) -> Log:
        """A small log of baskets of 1 to 30 of these items."""
        draw = np.random.default_rng(seed)
        return cls(
            [
                Event(
                    event_id=f"m{customer}-{basket}-{line}",
                    user_id=f"c{customer}",
                    item_id=item_ids[int(draw.integers(len(item_ids)))],
                    kind=Kind.PURCHASE,
                    at=START_MS + basket,
                )
                for customer in range(num_customers)
                for basket in range(1 + int(draw.integers(5)))
                for line in range(1 + int(draw.integers(30)))
            ]
        )

    @property
    def lines_per_basket(self) -> float:
        """The mean."""
        return sum(map(len, self.baskets)) / len(self.baskets)

    def user(self, number: int) -> str:
        """The user of this number: customer number % customers, replica number // customers."""
        replica, customer = divmod(number, len(self.customers))
        return f"{self.customers[customer]}~{replica}"

    def history(self, num_users: int) -> Iterator[Sent]:
        """One old event of every user, so that the stream job knows them all."""
        for step in range(num_users):
            number = step * STRIDE % num_users
            event = self._first[self.customers[number % len(self.customers)]]
            yield _sent(f"{event.event_id}~{number}", self.user(number), event, START_MS - num_users + step)

    def replay(self, num_users: int, num_events: int, seed: int) -> Iterator[Sent]:
        """``num_events`` events in order of time, a millisecond apart and later than any of a smaller seed.

        Whole baskets of random users, but for the last one. Event ids are those of no other seed.
        """
        draw = np.random.default_rng(seed)
        begun, count = START_MS + seed * 1_000_000_000, 0
        customers, replicas = len(self.customers), -(-num_users // len(self.customers))
        number_of = {customer: number for number, customer in enumerate(self.customers)}
        while count < num_events:
            basket = self.baskets[int(draw.integers(len(self.baskets)))]
            number = number_of[basket[0].user_id] + customers * int(draw.integers(replicas))
            user_id = self.user(number % num_users)
            for event in basket[: num_events - count]:
                yield _sent(f"{event.event_id}~{seed}.{count}", user_id, event, begun + count)
                count += 1


_encode = msgspec.json.Encoder().encode


def _sent(event_id: str, user_id: str, event: Event, at: int) -> Sent:
    return Sent(user_id, at, _encode(_Line(event_id, user_id, event.item_id, str(event.kind), at)))
