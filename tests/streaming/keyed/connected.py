"""Keyed functions of two streams, and of one stream with rules that a control stream sets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from streaming.clocks import BoundedOutOfOrderness
from streaming.declare.condition_rule import ConditionRule
from streaming.declare.keyed import Keyed, micros
from streaming.declare.pinned import Pinned
from streaming.declare.rule import Rule
from streaming.declare.stream import Stream
from streaming.formats.json import Json
from streaming.keyed.fold import Key
from streaming.sources.files import Files
from tests.streaming.keyed.functions import readings
from tests.support.instants import at


def stream(name: str, columns: str, rules: tuple[Rule, ...] = (), **derived: str) -> Stream:
    """A stream of JSON with `at`, whose clock waits for nothing."""
    return Stream(
        name=name,
        source=Files(f"landing/{name}", files_per_batch=1),
        format=Json(f"{columns}, at timestamp not null"),
        event_time="at",
        clock=BoundedOutOfOrderness("0 seconds"),
        rules=rules,
        derived=derived,
    )


# J6

forest = replace(readings, derived={**readings.derived, "place": "'forest'"})
smoke = stream("smoke", "level string not null", place="'forest'")


def watch_fire(key: Key, row: Any) -> None:
    if key.stream == "smoke":
        key.level = row.level
    elif key.level == "HIGH" and row.temperature > 100:
        key.emit(id=row.id, temperature=row.temperature)


forest_fires = Keyed(
    name="forest_fires",
    of=(smoke, forest),
    by=("place",),
    state="level string",
    result="id string, temperature double",
    on_row=watch_fire,
    order="event",
)

# J7

numbers = stream("numbers", "id int not null, number bigint")
words = stream("words", "id int not null, word string")


def meet(key: Key, row: Any) -> None:
    key.seen = [*(key.seen or []), str(row.number if key.stream == "numbers" else row.word)]
    key.emit(of=key.stream, seen=key.seen)


met = Keyed(
    "met", (numbers, words), ("id",), "seen array<string>", "of string, seen array<string>", meet, order="event"
)

# J10

orders = stream("orders", "id string not null, amount double")
payments = stream("payments", "id string not null, paid double")
PAID_WITHIN = micros("15 minutes")


def await_payment(key: Key, row: Any) -> None:
    if key.stream == "orders":
        key.amount, key.ordered_at = row.amount, key.at
        # The bound is inclusive, and a timer comes before rows of its time.
        key.timer("unpaid", key.at + PAID_WITHIN + 1)
    elif key.ordered_at is not None:
        key.emit(ordered_at=key.ordered_at, amount=key.amount, paid=row.paid)
        key.clear()


def give_up(key: Key) -> None:
    key.emit("unpaid", amount=key.amount)
    key.clear()


settled = Keyed(
    name="settled",
    of=(orders, payments),
    by=("id",),
    state="amount double, ordered_at timestamp",
    result="ordered_at timestamp, amount double, paid double",
    on_row=await_payment,
    timers={"unpaid": give_up},
    sides={"unpaid": "amount double"},
    order="event",
)

# R1

thresholds = stream(
    "thresholds",
    "id string not null, threshold double, number bigint not null",
    rules=(Rule("not_negative", "threshold >= 0"),),
)


def alert_over_threshold(key: Key, row: Any) -> None:
    previous, key.previous = key.previous, row.temperature
    rule = key.rules.get(key.key)
    if rule is None or not rule.threshold or previous is None:
        return
    if abs(row.temperature - previous) > rule.threshold:
        key.emit(temperature=row.temperature, jump=abs(row.temperature - previous), rule=rule.number)


jumps_by_rule = Keyed(
    name="jumps_by_rule",
    of=readings,
    by=("id",),
    state="previous double",
    result="temperature double, jump double, rule bigint",
    on_row=alert_over_threshold,
    rules=Pinned(thresholds, by=("id",), version="number"),
)

# R2

alert_rules = stream(
    "alert_rules",
    "rule_id string not null, version int not null, condition string, active boolean not null",
    rules=(ConditionRule("readable", column="condition", of=forest),),
)


def match(key: Key, row: Any) -> None:
    for rule in key.matching:
        if rule.active:
            key.emit(rule_id=rule.rule_id, version=rule.version, temperature=row.temperature)


matched = Keyed(
    name="matched",
    of=forest,
    by=("id",),
    state="",
    result="rule_id string, version int, temperature double",
    on_row=match,
    rules=Pinned(alert_rules, by=("rule_id",), version="version"),
)

# R4

commands = stream("commands", "command string not null, number bigint not null")


def alert_since_reset(key: Key, row: Any) -> None:
    reset = key.rules.get(("reset",))
    if reset is not None and reset.number != key.reset:
        key.reset, key.previous = reset.number, None
    if key.previous is not None and abs(row.temperature - key.previous) > 1.7:
        key.emit(temperature=row.temperature, previous=key.previous)
    key.previous = row.temperature


jumps_since_reset = Keyed(
    name="jumps_since_reset",
    of=readings,
    by=("id",),
    state="previous double, reset bigint",
    result="temperature double, previous double",
    on_row=alert_since_reset,
    rules=Pinned(commands, by=("command",), version="number"),
)

# R3, K22

models = stream("models", "model string not null, slope double, version int not null")


def score(key: Key, row: Any) -> None:
    model = key.rules.get(("heat",))
    if model is not None:
        key.emit(score=model.slope * row.temperature, model=model.version)


scored = Keyed(
    name="scored",
    of=readings,
    by=("id",),
    state="",
    result="score double, model int",
    on_row=score,
    rules=Pinned(models, by=("model",), version="version"),
)

# K21

views = stream("views", "user string not null, product string not null")
co_views = stream("co_views", "product string not null, others map<string, bigint>, version int not null")


def recommend(key: Key, row: Any) -> None:
    key.viewed = [*(key.viewed or []), row.product][-20:]
    counts: dict[str, int] = {}
    for product in key.viewed:
        rule = key.rules.get((product,))
        for other, number in (rule.others if rule is not None else {}).items():
            counts[other] = counts.get(other, 0) + number
    best = sorted((-number, other) for other, number in counts.items() if other not in key.viewed)
    key.emit(top=[other for _, other in best[:3]])


recommended = Keyed(
    name="recommended",
    of=views,
    by=("user",),
    state="viewed array<string>",
    result="top array<string>",
    on_row=recommend,
    rules=Pinned(co_views, by=("product",), version="version"),
)


def drawn(text: str, **constants: Any) -> list[dict[str, Any]]:
    """Rows in the notation `id=a level=HIGH @2, id=b @3`: columns, then seconds after T0; numbers are numbers."""
    rows = []
    for entry in filter(None, map(str.strip, text.split(","))):
        columns, _, seconds = entry.partition("@")
        values = dict(pair.split("=") for pair in columns.split())
        plain = {name: _value(value) for name, value in values.items()}
        rows.append({**constants, **plain, "at": at(float(seconds or 0)).isoformat()})
    return rows


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
