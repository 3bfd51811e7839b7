"""Calls without Spark: how many are in flight, what is tried again, what is kept, and how far a step takes a log."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from concurrent.futures import wait
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from streaming import BoundedOutOfOrderness, Enriched, Files, Json, LookupRequest, PostgresLookup, Stream
from streaming.base.errors import DeclarationError
from streaming.clocks import BatchSummary, ClockState
from streaming.log.batches import Batch
from streaming.lookups.calls import Answer, Calls, Question
from streaming.lookups.steps import Cache
from streaming.lookups.tables import Place, rows_between, taken
from tests.support import lookups
from tests.support.instants import NOW

events = Stream(
    name="events",
    source=Files("landing/events"),
    format=Json("id string not null, at timestamp not null, n bigint, weight double, kind string"),
    event_time="at",
    clock=BoundedOutOfOrderness("5 seconds"),
)


async def double(row: Any, request: LookupRequest) -> dict[str, Any]:
    return {"doubled": 2 * row.n}


enriched = Enriched("enriched", events, double, {"doubled": "bigint"}, select=("n",), timeout="30 seconds")


@dataclass
class Crowd:
    """Nobody is answered until so many ask at once."""

    size: int
    present: int = 0
    greatest: int = 0
    entered: asyncio.Event = field(default_factory=asyncio.Event)

    async def join(self) -> None:
        self.present += 1
        self.greatest = max(self.greatest, self.present)
        if self.present == self.size:
            self.entered.set()
        await self.entered.wait()
        self.present -= 1


CROWD = Crowd(100)
ATTEMPTS: list[tuple[int, str]] = []


@asynccontextmanager
async def crowd() -> Any:
    yield CROWD


async def in_a_crowd(row: Any, request: LookupRequest) -> dict[str, Any]:
    await request.opened.join()
    return {"doubled": 2 * row.n}


async def at_the_third_attempt(row: Any, request: LookupRequest) -> dict[str, Any] | None:
    ATTEMPTS.append((request.attempt, request.key))
    if request.attempt < 3:
        raise ConnectionError("reset")
    return None


async def leaves(row: Any, request: LookupRequest) -> dict[str, Any]:
    return {"doubled": 2} if row.n else sys.exit(1)


async def another_type(row: Any, request: LookupRequest) -> Any:
    return {"doubled": "two"}


async def broken_text(row: Any, request: LookupRequest) -> Any:
    raise ValueError("caf\udce9")


def questions(count: int) -> list[Question]:
    return [Question(n, ("n",), (n,), f"key {n}") for n in range(count)]


def ended(asked: list[Question]) -> list[Answer]:
    futures = [each.future for each in asked if each.future is not None]
    assert len(wait(futures, 60).done) == len(asked)
    return [future.result() for future in futures]


def test_a1_two_hundred_calls_are_made_a_hundred_at_a_time() -> None:
    asked = questions(200)
    with closing(Calls(replace(enriched, call=in_a_crowd, opens=crowd), lambda: NOW)) as calls:
        calls.ask(asked)
        answers = ended(asked)
    assert [each.values for each in answers] == [{"doubled": 2 * n} for n in range(200)]
    assert (CROWD.greatest, calls.most) == (100, 100)


def test_an_attempt_that_fails_is_repeated_under_its_key_until_none_is_left() -> None:
    (asked,) = questions(1)
    with closing(Calls(replace(enriched, call=at_the_third_attempt, retries=2), lambda: NOW)) as calls:
        for _ in range(3):
            assert asked.answer is None
            calls.ask([asked])
            (answer,) = ended([asked])
    assert ATTEMPTS == [(1, "key 0"), (2, "key 0"), (3, "key 0")]
    assert (answer.values, answer.kind, answer.attempt, asked.error) == (None, None, 3, "ConnectionError: reset")
    assert asked.answer == answer


def test_an_answer_of_another_type_than_declared_is_a_failure_of_its_row() -> None:
    (asked,) = questions(1)
    with closing(Calls(replace(enriched, call=another_type), lambda: NOW)) as calls:
        calls.ask([asked])
        (answer,) = ended([asked])
    assert (answer.kind, answer.error) == ("error", "ValueError: 'two' is a str and no whole number")


def test_an_error_with_a_text_that_is_no_utf_8_can_be_kept_with_its_row() -> None:
    (asked,) = questions(1)
    with closing(Calls(replace(enriched, call=broken_text), lambda: NOW)) as calls:
        calls.ask([asked])
        (answer,) = ended([asked])
    assert (answer.error, asked.error) == (r"ValueError: caf\udce9",) * 2


@pytest.fixture
def processes() -> Iterator[Calls]:
    plain = replace(enriched, select={"what": "kind"}, call=lookups.plain, capacity=1)
    with closing(Calls(plain, lambda: NOW)) as calls:
        yield calls


@pytest.mark.long
def test_a_process_outlives_an_error_and_not_its_own_end(processes: Calls) -> None:
    whats = ("pid", "raises", "pid", "exits", "pid")
    asked = [Question(n, ("what",), (what,), f"key {n}") for n, what in enumerate(whats)]
    processes.ask(asked)
    first, raised, again, left, other = ended(asked)
    assert (raised.kind, raised.error) == ("error", "KeyError: 'raises'")
    assert (left.kind, left.error) == ("error", "ProcessLookupError: the process that called it ended with code 7")
    assert first.values == again.values != other.values


def test_a_call_that_asks_for_the_end_of_the_process_ends_alone() -> None:
    asked = questions(2)
    with closing(Calls(replace(enriched, call=leaves), lambda: NOW)) as calls:
        calls.ask(asked)
        first, second = ended(asked)
    assert first.error == "RuntimeError: the call asked for the end of the process: SystemExit(1)"
    assert second.values == {"doubled": 2}


def test_what_cannot_be_opened_is_told_by_each_row_that_needs_it() -> None:
    for call in (double, lookups.plain):
        (asked,) = questions(1)
        with closing(Calls(replace(enriched, call=call, opens=lookups.no_client), lambda: NOW)) as calls:
            calls.ask([asked])
            (answer,) = ended([asked])
        assert (answer.kind, answer.error) == ("error", "ConnectionError: nobody is there")


def test_answers_are_kept_for_the_time_given_and_failures_are_not() -> None:
    cache, answer = Cache(kept_for=10, most=2), Answer({"doubled": 2}, 1, asked_at=95, answered_at=100)
    cache.put("a", answer)
    cache.put("f", Answer(None, 1, 95, 100, "error", "refused"))
    assert cache.get("a", 109) == replace(answer, cached=True)
    assert cache.get("f", 101) is None
    cache.put("b", answer)
    assert cache.get("a", 101) is not None
    cache.put("c", answer)
    assert cache.get("b", 101) is None, "the one that was used least lately"
    assert cache.get("a", 110) is None


def batch(number: int, rows: int, rejected: int = 0) -> Batch:
    return Batch(number, "log", number, ClockState(), BatchSummary({}, rows, NOW), events.clock, rejected)


BATCHES = [batch(0, 3, 1), batch(1, 0), batch(2, 5)]


@pytest.mark.parametrize(
    ("at", "most", "until", "rows"),
    [
        (Place(), 0, Place(-1, 0), 0),
        (Place(), 1, Place(-1, 1), 1),
        (Place(-1, 1), 1, Place(1), 1),
        (Place(), 2, Place(1), 2),
        (Place(), 4, Place(1, 2), 4),
        (Place(1, 2), 100, Place(2), 3),
    ],
)
def test_a_step_takes_as_many_rows_as_may_wait_and_cuts_a_batch(at: Place, most: int, until: Place, rows: int) -> None:
    behind = [each for each in BATCHES if each.number > at.through]
    assert taken(at, behind, most) == until
    assert rows_between(at, until, behind) == rows


@pytest.mark.parametrize(
    ("declared", "text"),
    [
        ({"key": ("id",)}, "key of enrichment 'enriched' reads unknown column 'id'"),
        ({"key": ("weight",), "select": None}, "of type double, whose equal values are not always the same"),
        ({"cache": "1 hour"}, "keeps answers for a key, and there is none"),
        (
            {"order": "sorted"},
            "order='sorted' of enrichment 'enriched' is unknown; use one of: 'arrival', 'as",
        ),
        ({"on_failure": "default"}, "needs one; write default={'doubled': ...}"),
        ({"default": {"n": 1}}, "default of enrichment 'enriched' has 'n', which no call answers with"),
        ({"default": {"doubled": "two"}}, "has 'two' for 'doubled', which is a bigint"),
        ({"result": {}}, "result of enrichment 'enriched' is empty"),
        ({"result": {"n": "bigint"}}, "has 'n', which is also a column of the result"),
        ({"select": ("n", "kind")}, "also a column of the side output 'failed'; select it under another name"),
        ({"capacity": 0}, "capacity=0 of enrichment 'enriched' is no number of calls"),
        ({"timeout": "soon"}, "'soon' is not an interval"),
        ({"call": lambda row, request: None}, "cannot find by its name"),
    ],
)
def test_a_declaration_that_cannot_be_is_refused(declared: dict[str, Any], text: str) -> None:
    with pytest.raises(DeclarationError) as refused:
        replace(enriched, **declared)
    assert text in str(refused.value)


def test_a_lookup_with_a_password_is_refused() -> None:
    with pytest.raises(DeclarationError, match="a Postgres lookup has a password"):
        PostgresLookup("host=db password=secret", "select 1")
