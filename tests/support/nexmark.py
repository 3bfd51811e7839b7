"""Events of NEXMark, the benchmark of an online auction, after the generator of github.com/nexmark/nexmark.

Of 50 events one is a person, three are auctions, and 46 are bids, half of which are for one hot auction at a time. The
same arguments make the same bytes. What differs from the original: its strings, since Java's random numbers are not
Python's; bidders have the ids of persons (there, an offset is added twice); and some events may come late.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

PERSON, AUCTION, BID = "person", "auction", "bid"
FIRST_ID = 1_000
FIRST_CATEGORY, CATEGORIES = 10, 5
_SHARES = {PERSON: 1, AUCTION: 3, BID: 46}
_ALL = sum(_SHARES.values())
_SIZES = {PERSON: 200, AUCTION: 500, BID: 100}
"""Bytes of an event on average, as the original counts them."""

_AHEAD = 10
"""How many persons and auctions that do not exist yet may be named."""

_STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
_CITIES = (
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
)
_FIRST_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
_LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
_OTHER_CHANNELS = 10_000
_TEXT = 2**13


@dataclass(frozen=True)
class Shape:
    """The generated events, `a_second` of them in a second of event time.

    Every `hot`-th person and auction is a hot one until the next. In groups of `disorder` events the order is mixed. A
    `late` share of the events comes `late_by` events later than it should.
    """

    events: int
    a_second: int = 10_000
    auctions_in_flight: int = 100
    active_persons: int = 1_000
    hot: int = 100
    disorder: int = 1
    late: float = 0.0
    late_by: int = 0
    begin: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    seed: int = 2002


def events(shape: Shape) -> Iterator[tuple[str, str]]:
    """The events in the order in which they come, each with its kind and as a line of JSON."""
    draw = random.Random(f"{shape.seed}/late").random
    waiting: deque[tuple[int, tuple[str, str]]] = deque()
    made = _Maker(shape)
    for number in range(shape.events):
        while waiting and waiting[0][0] <= number:
            yield waiting.popleft()[1]
        event = made.event(number)
        if draw() < shape.late:
            waiting.append((number + shape.late_by, event))
        else:
            yield event
    yield from (event for _, event in waiting)


class _Maker:
    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._draw = random.Random(f"{shape.seed}/events").random
        self._micros_an_event = 1_000_000 // shape.a_second
        self._begin = int(shape.begin.timestamp())
        self._second, self._prefix = -1, ""
        letters = "abcdefghijklmnopqrstuvwxyz"
        self._letters = "".join(letters[self._below(26)] for _ in range(_TEXT))
        self._words = "".join(" " if self._below(13) == 0 else letters[self._below(26)] for _ in range(_TEXT))
        self._hot_urls = [self._url() for _ in _CHANNELS]
        self._other_urls: dict[int, str] = {}

    def event(self, number: int) -> tuple[str, str]:
        """The event that comes at this place."""
        group = self._shape.disorder
        number = number // group * group + number * 953 % group
        of_kind = number % _ALL
        if of_kind < _SHARES[PERSON]:
            return PERSON, self._person(number)
        if of_kind < _SHARES[PERSON] + _SHARES[AUCTION]:
            return AUCTION, self._auction(number)
        return BID, self._bid(number)

    def _person(self, number: int) -> str:
        card = " ".join(f"{self._below(10_000):04}" for _ in range(4))
        name = f"{self._one_of(_FIRST_NAMES)} {self._one_of(_LAST_NAMES)}"
        email = f"{self._word(7)}@{self._word(5)}.com"
        city, state = self._one_of(_CITIES), self._one_of(_STATES)
        size = 8 + len(name) + len(email) + len(card) + len(city) + len(state)
        return (
            f'{{"id":{FIRST_ID + self._newest_person(number)},"name":"{name}","emailAddress":"{email}",'
            f'"creditCard":"{card}","city":"{city}","state":"{state}","dateTime":"{self._time(number)}",'
            f'"extra":"{self._extra(PERSON, size)}"}}'
        )

    def _auction(self, number: int) -> str:
        name, description = self._word(20), self._word(100)
        seller = self._hot(self._newest_person(number)) if self._below(4) else self._some_person(number)
        initial = self._price()
        ahead = self._shape.auctions_in_flight * _ALL // _SHARES[AUCTION]
        lasts = 1_000 + self._below(max(2 * ahead * self._micros_an_event, 1))
        return (
            f'{{"id":{FIRST_ID + self._newest_auction(number)},"itemName":"{name}","description":"{description}",'
            f'"initialBid":{initial},"reserve":{initial + self._price()},"dateTime":"{self._time(number)}",'
            f'"expires":"{self._time(number, lasts)}","seller":{FIRST_ID + seller},'
            f'"category":{FIRST_CATEGORY + self._below(CATEGORIES)},'
            f'"extra":"{self._extra(AUCTION, 48 + len(name) + len(description))}"}}'
        )

    def _bid(self, number: int) -> str:
        auction = self._hot(self._newest_auction(number)) if self._below(2) else self._some_auction(number)
        # The second person of each lot, so that a hot bidder is no hot seller.
        bidder = self._hot(self._newest_person(number)) + 1 if self._below(4) else self._some_person(number)
        if self._below(2):
            which = self._below(len(_CHANNELS))
            channel, url = _CHANNELS[which], self._hot_urls[which]
        else:
            which = self._below(_OTHER_CHANNELS)
            if which not in self._other_urls:
                self._other_urls[which] = self._url(which)
            channel, url = f"channel-{which}", self._other_urls[which]
        return (
            f'{{"auction":{FIRST_ID + auction},"bidder":{FIRST_ID + bidder},"price":{self._price()},'
            f'"channel":"{channel}","url":"{url}","dateTime":"{self._time(number)}",'
            f'"extra":"{self._extra(BID, 32)}"}}'
        )

    def _newest_person(self, number: int) -> int:
        return number // _ALL

    def _newest_auction(self, number: int) -> int:
        lot, place = divmod(number, _ALL)
        newest = place - _SHARES[PERSON]
        return max(lot * _SHARES[AUCTION] + min(newest, _SHARES[AUCTION] - 1), 0)

    def _some_person(self, number: int) -> int:
        there = self._newest_person(number) + 1
        active = min(there, self._shape.active_persons)
        return there - active + self._below(active + _AHEAD)

    def _some_auction(self, number: int) -> int:
        newest = self._newest_auction(number)
        oldest = max(newest - self._shape.auctions_in_flight, 0)
        return oldest + self._below(newest - oldest + 1 + _AHEAD)

    def _hot(self, newest: int) -> int:
        return newest // self._shape.hot * self._shape.hot

    def _price(self) -> int:
        return round(10 ** (self._draw() * 6) * 100)

    def _below(self, end: int) -> int:
        return int(self._draw() * end)

    def _one_of(self, names: tuple[str, ...]) -> str:
        return names[self._below(len(names))]

    def _word(self, most: int) -> str:
        at, length = self._below(_TEXT - most), 3 + self._below(most - 3)
        return self._words[at : at + length].strip()

    def _url(self, number: int | None = None) -> str:
        path = "/".join(self._word(5).replace(" ", "_") for _ in range(3))
        channel = ""
        if number is not None and self._below(10):
            channel = f"&channel_id={int(f'{number:032b}'[::-1], 2) % 2**31}"
        return f"https://www.nexmark.com/{path}/item.htm?query=1{channel}"

    def _extra(self, kind: str, size: int) -> str:
        missing = max(_SIZES[kind] - size, 0)
        length = missing - round(missing * 0.2) + self._below(2 * round(missing * 0.2))
        at = self._below(_TEXT - length)
        return self._letters[at : at + length]

    def _time(self, number: int, more: int = 0) -> str:
        """ISO 8601 of the event's time and so many microseconds more, to the millisecond."""
        second, micros = divmod(number * self._micros_an_event + more, 1_000_000)
        if second != self._second:
            self._second = second
            self._prefix = datetime.fromtimestamp(self._begin + second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        return f"{self._prefix}.{micros // 1_000:03}Z"
