"""Integers: computed with, split in two, dealt out to numbered places, and handed to a function with a life."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from streaming import BoundedOutOfOrderness, Files, Json, Pipeline, RowFunction, Selected, Side, Stream

PLACES = 4

numbers = Stream(
    name="numbers",
    description="One row per pair of integers, at the time at which it was read.",
    source=Files("landing/numbers"),
    format=Json("n bigint not null, other bigint"),
    derived={"read_at": "_ingested_at"},
    event_time="read_at",
    clock=BoundedOutOfOrderness("0 seconds"),
)

computed = Selected(
    name="computed",
    description="All of them; beside them, from the same pass, the large and the small ones.",
    of=numbers,
    select={"n": "n", "next": "n + 1", "key": "greatest(n, other)"},
    sides={
        "large": Side(select=("n",), where="n > 1000"),
        "small": Side(select=("n",), where="n <= 1000"),
    },
)

placed = Selected(
    name="placed",
    description="Negative integers go to place 0, others to any; the other outputs deal out in other ways.",
    of=numbers,
    select={"n": "n", "place": f"if(n < 0, 0, pmod(hash(n), {PLACES}))"},
    sides={
        # By where the source had a row: dealt out at random, a task that is repeated would move rows.
        "spread": Side(select={"n": "n", "place": f"pmod(xxhash64(_origin), {PLACES})"}),
        "in_turn": Side(select={"n": "n", "place": f"pmod(_origin.position, {PLACES})"}),
        "to_two": Side(select={"n": "n", "place": "pmod(_origin.position, 2)"}),
        "to_one": Side(select={"n": "n", "place": "0"}),
        "to_all": Side(explode={"place": f"sequence(0, {PLACES - 1})"}, select=("n", "place")),
    },
)


@contextmanager
def parity(task: int) -> Iterator[int]:
    """The divisor of the numbers, for as long as a task has rows."""
    yield 2


def by_parity(row: Any, divisor: int) -> Iterator[dict[str, int]]:
    """Each number with its bucket, which does not depend on the task that handles it."""
    yield {"bucket": row.n % divisor, "n": row.n}


bucketed = Selected(
    name="bucketed", of=numbers, function=RowFunction(by_parity, returns="bucket bigint, n bigint", opens=parity)
)

pipeline = Pipeline(stream=numbers, views=(computed, placed, bucketed))
