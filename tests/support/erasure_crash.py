"""An erasure that ends by a real SIGKILL at a named point: `python -m tests.support.erasure_crash <lake> <point>`.

Two streams, and what is computed of one, of the other, and of both. The session is lent: an erasure has Spark read and
write files, and commits them in Python.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from streaming import (
    BoundedOutOfOrderness,
    Files,
    Joined,
    Json,
    Lake,
    Pipeline,
    Stream,
    Tumbling,
    Windowed,
    WindowJoined,
    agg,
)
from streaming.operations.erasure.erasing import Erased, erase
from streaming.operations.erasure.rows import Person
from tests.support.crash import Point, die_at
from tests.support.instants import NOW

orders = Stream(
    name="orders",
    source=Files("landing/orders", files_per_batch=1),
    format=Json("customer string not null, ordered timestamp not null, amount decimal(10, 2)"),
    event_time="ordered",
    clock=BoundedOutOfOrderness("0 seconds"),
)
payments = Stream(
    name="payments",
    source=Files("landing/payments", files_per_batch=1),
    format=Json("customer string not null, paid timestamp not null, amount decimal(10, 2)"),
    event_time="paid",
    clock=BoundedOutOfOrderness("0 seconds"),
)
tens = Windowed("tens", orders, Tumbling("10 seconds"), {"orders": agg.count(), "amount": agg.sum("amount")})
settled = Joined("settled", orders, payments, ("customer",), ("-5 seconds", "5 seconds"), kind="outer")
together = WindowJoined("together", orders, payments, ("customer",), Tumbling("10 seconds"), kind="left")
pipeline = Pipeline(name="shop", streams=(orders, payments), operators=(tens, settled, together))
ADA = Person("customer", "ada")

_ERASURE = "streaming.operations.erasure"

# In the order in which one lake meets them: each attempt goes on where the one before it ended.
POINTS: dict[str, Point] = {
    "noted what goes of the first log, nothing taken out": Point("", f"{_ERASURE}.erasing", "take_out", 1),
    "taken out of the second log, not noted": Point(
        "", f"{_ERASURE}.erasing", "take_out", 1, "/payments/log", after=True
    ),
    "one of three operators built anew": Point("", f"{_ERASURE}.erasing", "rebuild_held", 1, after=True),
    "old files of a log deleted, not noted": Point(
        "", f"{_ERASURE}.erasing", "_forget_history", 1, "/orders/log", after=True
    ),
}


def erase_ada(spark: SparkSession, lake: Lake) -> Erased:
    """Erase the person."""
    return erase(spark, lake, pipeline, ADA, now=lambda: NOW)


if __name__ == "__main__":
    die_at(POINTS, erase_ada)
