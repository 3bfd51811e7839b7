"""How rows wait, are asked for again and are remembered, in a thousand cases each, against plain lists."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from concurrent.futures import wait
from contextlib import closing
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from streaming import LookupRequest
from streaming.lookups import calls as calls_of_enrichments
from streaming.lookups.calls import Answer, Calls, Question
from streaming.lookups.steps import Cache, Waiting
from streaming.lookups.tables import Place, rows_between, taken
from tests.streaming.lookups.test_calls import batch, enriched
from tests.support.instants import NOW
from tests.support.seeds import draws

CASES = 1_000

SELECTED = pa.schema(
    {
        "n": pa.int64(),
        "_at": pa.timestamp("us", "UTC"),
        "_batch": pa.int64(),
        "_origin": pa.struct([("position", pa.int64())]),
    }
)


def rows_of(values: list[int], first: int) -> pa.Table:
    places = range(first, first + len(values))
    columns = [values, [NOW] * len(values), [0] * len(values), [{"position": place} for place in places]]
    return pa.table([pa.array(each, field.type) for each, field in zip(columns, SELECTED, strict=True)], SELECTED)


class Queue:
    """What waits, told once more with plain lists: places of rows, each with the number of its question."""

    def __init__(self, *, shared: bool, in_order: bool) -> None:
        self.rows: list[tuple[int, int]] = []
        self.asked: list[int] = []
        self.answered: set[int] = set()
        self.arrived = 0
        self._shared, self._in_order = shared, in_order

    @property
    def unanswered(self) -> list[int]:
        return [question for question in range(len(self.asked)) if question not in self.answered]

    def add(self, values: list[int]) -> None:
        for value in values:
            same = [question for question in self.unanswered if self._shared and self.asked[question] == value]
            if not same:
                self.asked.append(value)
            self.rows.append((self.arrived, same[0] if same else len(self.asked) - 1))
            self.arrived += 1

    def take(self) -> list[tuple[int, int]]:
        taken = []
        for place, question in list(self.rows):
            if question in self.answered:
                taken.append((place, question))
                self.rows.remove((place, question))
            elif self._in_order:
                break
        return taken


WAYS = [replace(enriched, order=order, key=key) for order in ("arrival", "as they come") for key in ((), ("n",))]


def test_each_row_comes_out_once_with_the_answer_to_its_question_and_in_order_of_arrival_none_overtakes() -> None:
    for case in range(CASES):
        draw, of = draws("lookup", case), WAYS[case % len(WAYS)]
        waiting, queue = Waiting(of, SELECTED), Queue(shared=bool(of.key), in_order=of.order == "arrival")
        keys: list[str] = []
        out: list[int] = []
        moves = [draw.choice(("rows", "answer", "answer", "take")) for _ in range(draw.randrange(10))]
        while moves or queue.unanswered:
            move = moves.pop() if moves else "answer"
            if move == "rows":
                values = [draw.randrange(3) for _ in range(draw.randrange(5))]
                keys += [question.key for question in waiting.add(rows_of(values, queue.arrived))]
                queue.add(values)
                assert len(keys) == len(set(keys)) == len(queue.asked), case
            elif move == "answer" and queue.unanswered:
                place = draw.randrange(len(queue.unanswered))
                assert [each.row for each in waiting.unanswered] == [(queue.asked[n],) for n in queue.unanswered], case
                waiting.unanswered[place].settle(Answer({"doubled": queue.unanswered[place]}, 1, 0, 0))
                queue.answered.add(queue.unanswered[place])
            if move == "take" or not queue.unanswered:
                rows, questions = waiting.take_answered()
                answers = [each.answer.values["doubled"] for each in questions if each.answer and each.answer.values]
                places = [origin["position"] for origin in rows["_origin"].to_pylist()]
                assert list(zip(places, answers, strict=True)) == queue.take(), case
                out += places
        assert sorted(out) == list(range(queue.arrived)) and len(waiting) == 0, case
        assert of.order != "arrival" or out == sorted(out), case


ATTEMPTS: defaultdict[int, list[tuple[int, str]]] = defaultdict(list)
IN_FLIGHT: list[int] = []
MOST: list[int] = [0]


async def fails_at_first(row: Any, request: LookupRequest) -> dict[str, Any]:
    """As often as its row says."""
    ATTEMPTS[row.n].append((request.attempt, request.key))
    IN_FLIGHT.append(row.n)
    MOST[0] = max(MOST[0], len(IN_FLIGHT))
    await asyncio.sleep(0)
    IN_FLIGHT.remove(row.n)
    if request.attempt <= row.fails:
        raise ConnectionError("reset")
    return {"doubled": 2 * row.n}


BY_RETRIES = [replace(enriched, call=fails_at_first, retries=retries, capacity=2) for retries in range(4)]


def test_a_question_is_asked_until_it_is_answered_or_no_attempt_is_left_and_only_so_many_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("_FIRST_RETRY", "_JITTER"):
        monkeypatch.setattr(calls_of_enrichments, name, 0.0)
    for of in BY_RETRIES:
        MOST[0] = 0
        with closing(Calls(of, lambda: NOW)) as calls:
            for case in range(CASES // len(BY_RETRIES)):
                ATTEMPTS.clear()
                draw = draws("lookup", case)
                fails = [draw.randrange(5) for _ in range(draw.randrange(1, 5))]
                asked = [Question(n, ("n", "fails"), (n, often), f"key {n}") for n, often in enumerate(fails)]
                waiting = asked
                while waiting:
                    calls.ask(waiting)
                    assert not wait([each.future for each in waiting if each.future], 60).not_done
                    waiting = [each for each in waiting if each.is_to_repeat]
                for (number, often), question in zip(enumerate(fails), asked, strict=True):
                    last, answer = min(often, of.retries) + 1, question.answer
                    assert ATTEMPTS[number] == [(attempt, question.key) for attempt in range(1, last + 1)], case
                    outcome = ("error", None) if often > of.retries else (None, {"doubled": 2 * number})
                    assert answer is not None and (answer.attempt, answer.kind, answer.values) == (last, *outcome), case
            assert calls.most == MOST[0] <= 2


def test_each_further_attempt_waits_longer_and_never_much_more_than_a_minute() -> None:
    for attempts in range(1, CASES + 1):
        planned = min(60.0, 0.25 * 2 ** min(attempts - 1, 100))
        assert planned <= calls_of_enrichments._wait_before(attempts) <= planned + 0.25


def test_what_is_remembered_is_the_newest_good_answer_of_the_keys_that_were_used_last() -> None:
    for case in range(CASES):
        draw = draws("lookup", case)
        cache = Cache(kept_for=10, most=(most := draw.randint(1, 4)))
        # Keys with the time of their answer, in the order in which they were used.
        kept: list[tuple[str, int]] = []
        for _ in range(draw.randrange(20)):
            what, key, time = draw.choice(("put", "put", "get", "get", "fail")), draw.choice("abcd"), draw.randrange(40)
            if what == "get":
                entries = [entry for entry in kept if entry[0] == key]
                good = [entry for entry in entries if time - entry[1] < 10]
                kept = [*(entry for entry in kept if entry[0] != key), *good]
                answer = cache.get(key, time)
                assert ([] if answer is None else [(key, answer.answered_at)]) == good, case
                assert answer is None or answer.cached
            elif what == "put":
                cache.put(key, Answer({"doubled": time}, 1, time, time))
                kept = [*(entry for entry in kept if entry[0] != key), (key, time)][-most:]
            else:
                cache.put(key, Answer(None, 1, time, time, "error", "refused"))


def test_steps_take_each_valid_row_of_a_log_once_and_no_more_than_may_wait() -> None:
    for case in range(CASES):
        draw = draws("lookup", case)
        sizes = [(draw.randrange(5), draw.randrange(3)) for _ in range(draw.randrange(1, 7))]
        log = [batch(number, valid + rejected, rejected) for number, (valid, rejected) in enumerate(sizes)]
        before = [sum(valid for valid, _ in sizes[:number]) for number in range(len(sizes) + 1)]
        at, total = Place(), 0
        while at != Place(len(sizes) - 1):
            most, behind = draw.randint(1, 5), [each for each in log if each.number > at.through]
            until = taken(at, behind, most)
            count = rows_between(at, until, behind)
            assert count == min(most, before[-1] - total), case
            at, total = until, total + count
            assert before[at.through + 1] + at.row == total, case
        assert total == before[-1], case
