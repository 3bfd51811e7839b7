"""A declaration that cannot work is refused when it is built, with the value, what would be valid, and what to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace

import pytest

from streaming import (
    Aggregate,
    BoundedOutOfOrderness,
    Files,
    Json,
    Pipeline,
    Punctuated,
    Rule,
    Stream,
    Tumbling,
    Windowed,
    agg,
    declared_pipelines,
    epoch_millis,
    find_pipeline,
)
from streaming.base.errors import DeclarationError, StreamingError

STREAM = Stream(
    name="orders",
    source=Files("landing/orders"),
    format=Json("id string not null, amount double, ts bigint, at timestamp, day date"),
    event_time="at",
    clock=BoundedOutOfOrderness("5 minutes"),
    derived={"made_at": epoch_millis("ts")},
    rules=(Rule("amount_present", "amount is not null"),),
)
VIEW = Windowed(name="by_hour", of=STREAM, by=("id",), window=Tumbling("1 hour"), aggregates={"orders": agg.count()})
PIPELINE = Pipeline(STREAM, (VIEW,))
COLUMNS = "id, amount, ts, at, day, made_at"
SAME_RULES = (Rule("once", "id = 'a'"), Rule("once", "id = 'b'"))


def stream_with(condition: str) -> Stream:
    """The stream with one rule of this condition."""
    return replace(STREAM, rules=(Rule("r", condition),))


# What is declared, and the salient words of the error: the value, what is valid, what to do.
REFUSED: dict[str, tuple[Callable[[], object], tuple[str, ...]]] = {
    "stream name": (lambda: replace(STREAM, name="My Orders"), ("'My Orders'", "stream", "lower-case letters")),
    "stream name that the lake needs": (lambda: replace(STREAM, name="reports"), ("'reports'", "landing", "Rename")),
    "columns that differ only in case": (
        lambda: Json("id string, ID bigint"),
        ("repeats id", "write each column once"),
    ),
    "empty stream name": (lambda: replace(STREAM, name=""), ("''", "beginning with a letter")),
    "view name": (lambda: replace(VIEW, name="by-hour"), ("'by-hour'", "view", "lower-case")),
    "rule name": (lambda: Rule("1st", "id = 'a'"), ("'1st'", "rule", "beginning with a letter")),
    "reserved column": (lambda: Json("_day date, id string"), ("'_day'", "belong to the event log", "Rename")),
    "reserved derived column": (lambda: replace(STREAM, derived={"_x": "id"}), ("'_x'", "Rename")),
    "column twice": (lambda: Json("id string, id bigint"), ("repeats id", "write each column once")),
    "no column": (lambda: Json(""), ("''", "<name> <type>")),
    "schema is no SQL": (lambda: Json("id string string string,"), ("cannot read the schema", "Spark SQL")),
    "type that JSON cannot carry": (lambda: Json("id interval"), ("'id'", "'interval'", "use string, boolean")),
    "binary type": (lambda: Json("id binary"), ("'id'", "'binary'", "use string")),
    "unknown event time": (lambda: replace(STREAM, event_time="when"), ("'when'", "'orders'", "at, made_at")),
    "event time is no timestamp": (
        lambda: replace(STREAM, event_time="ts"),
        ("'ts'", "at, made_at", "epoch_millis('<column>')"),
    ),
    "event time is a date": (lambda: replace(STREAM, event_time="day"), ("'day'", "at, made_at")),
    "rule reads unknown column": (
        lambda: replace(STREAM, rules=(Rule("r", "amout > 0"),)),
        ("'r'", "'amout'", f"Columns there are: {COLUMNS}", "declare the column"),
    ),
    "rule is no SQL": (lambda: replace(STREAM, rules=(Rule("r", "amount >"),)), ("'amount >'", "Spark SQL")),
    "rule twice": (lambda: replace(STREAM, rules=SAME_RULES), ("'once'", "declared twice", "rename one")),
    "derived reads unknown column": (lambda: replace(STREAM, derived={"x": "y + 1"}), ("'x'", "'y'", "id, amount")),
    "derived reads a later one": (
        lambda: replace(STREAM, derived={"made_at": "later", "later": "at"}),
        ("'made_at'", "'later'"),
    ),
    "derived hides a payload column": (lambda: replace(STREAM, derived={"id": "amount"}), ("'id'", "exists already")),
    "epoch_millis of an unknown column": (
        lambda: replace(STREAM, derived={"made_at": epoch_millis("tss")}),
        ("'tss'", "Correct the name"),
    ),
    "key unknown": (lambda: replace(VIEW, by=("id", "city")), ("'by_hour'", "'city'", COLUMNS)),
    "key twice": (lambda: replace(VIEW, by=("id", "id")), ("repeats a key", "name each once")),
    "no aggregates": (lambda: replace(VIEW, aggregates={}), ("'by_hour'", "neither aggregates", "count()")),
    "aggregate reads unknown column": (
        lambda: replace(VIEW, aggregates={"m": agg.mean("price")}),
        ("'m'", "'price'", COLUMNS),
    ),
    "aggregate has the name of a key": (lambda: replace(VIEW, aggregates={"id": agg.count()}), ("'id'", "rename it")),
    "aggregate has the name of a bound": (
        lambda: replace(VIEW, aggregates={"window_end": agg.count()}),
        ("'window_end'", "window_start, window_end"),
    ),
    "aggregate has a reserved name": (lambda: replace(VIEW, aggregates={"_n": agg.count()}), ("'_n'", "Rename")),
    "where reads unknown column": (lambda: replace(VIEW, where="price > 1"), ("where of view", "'price'", COLUMNS)),
    "empty window": (lambda: Tumbling("0 seconds"), ("'0 seconds'", "give it a length")),
    "window without unit": (lambda: Tumbling("10"), ("'10'", "'15 minutes'")),
    "offset as long as the window": (lambda: Tumbling("1 hour", "60 minutes"), ("'60 minutes'", "'1 hour'")),
    "offset of months": (lambda: Tumbling("1 hour", "1 month"), ("'1 month'", "Units:")),
    "negative delay": (lambda: BoundedOutOfOrderness("-5 minutes"), ("'-5 minutes'", "not an interval")),
    "max_ahead": (lambda: BoundedOutOfOrderness("5 minutes", max_ahead="soon"), ("'soon'", "not an interval")),
    "no files per batch": (lambda: Files("landing", files_per_batch=0), ("files_per_batch=0", "use 1 or more")),
    "no bytes per batch": (lambda: Files("landing", bytes_per_batch=-1), ("bytes_per_batch=-1", "use 1 or more")),
    "two caps of a batch": (
        lambda: Files("landing", files_per_batch=2, bytes_per_batch=1000),
        ("files_per_batch=2 and bytes_per_batch=1000 exclude one another", "keep the one"),
    ),
    "no views": (
        lambda: Pipeline(STREAM).check_computes(),
        ("'orders'", "nothing is computed", "views/NAME.sql", "tidemark new view NAME --sql", "operators=(...)"),
    ),
    "view twice": (lambda: Pipeline(STREAM, (VIEW, VIEW)), ("'by_hour'", "needs its own")),
    "view named like a part of the stream": (
        lambda: Pipeline(STREAM, (replace(VIEW, name="late"),)),
        ("'late'", "belong to the stream"),
    ),
    "view in the place of another's corrections": (
        lambda: Pipeline(STREAM, (VIEW, replace(VIEW, name="by_hour_corrections"))),
        ("'by_hour_corrections'", "corrections of view 'by_hour'", "rename one"),
    ),
    "view of another stream": (
        lambda: Pipeline(replace(STREAM, name="returns"), (VIEW,)),
        ("'by_hour'", "'orders'", "'returns'"),
    ),
    "unknown view": (lambda: PIPELINE.view("by_day"), ("'by_day'", "its views: by_hour")),
    "rule is a number": (lambda: stream_with("amount + 1"), ("'amount + 1'", "a number and no boolean", "is not null")),
    "rule is a text": (lambda: stream_with("id"), ("'id'", "a text and no boolean")),
    "rule calls an unknown function": (
        lambda: stream_with("lenght(id) > 0"),
        ("lenght()", "no function of Spark SQL", "did you mean length"),
    ),
    "rule aggregates": (lambda: stream_with("max(amount) > 1"), ("MAX(amount)", "columns of one row", "in a view")),
    "derived aggregates": (lambda: replace(STREAM, derived={"x": "sum(amount)"}), ("SUM(amount)", "of one row")),
    "event time is derived as a number": (
        lambda: replace(STREAM, derived={"twice": "amount * 2"}, event_time="twice"),
        ("'twice'", "of type double", "no timestamp column"),
    ),
    "clock is moved by a number": (lambda: replace(STREAM, clock=Punctuated("amount")), ("the clock", "no boolean")),
    "where is a number": (lambda: replace(VIEW, where="amount"), ("where of view", "a number and no boolean")),
    "by is an expression": (lambda: replace(VIEW, by=("upper(id)",)), ("'upper(id)'", "an expression", "derived={")),
    "aggregate is a value of each row": (
        lambda: replace(VIEW, aggregates={"m": Aggregate("amount + 1", "m")}),
        ("aggregate 'm'", "'amount + 1'", "agg.sum('amount + 1')"),
    ),
    "count of a number": (
        lambda: replace(VIEW, aggregates={"m": agg.count("amount")}),
        ("aggregate 'm' of view 'by_hour' counts", "'amount', a number and no boolean"),
    ),
    "size is a number": (lambda: Tumbling(60), ("60 is not an interval", "'15 minutes'")),  # type: ignore[arg-type]
    "negative length": (lambda: Tumbling("-1 hour"), ("'-1 hour'", "never negative", "only the offset of a window")),
    "endless delay": (lambda: BoundedOutOfOrderness("9999999999 days"), ("'9999999999 days'", "'36500 days'")),
    "views is one view": (lambda: Pipeline(STREAM, VIEW), ("views is the operator 'by_hour'", "views=(by_hour,)")),  # type: ignore[arg-type]
    "an entry of views is a text": (lambda: Pipeline(STREAM, ("by_hour",)), ("an entry of views", "'by_hour', a str")),  # type: ignore[arg-type]
    "stream is a text": (lambda: Pipeline("orders", (VIEW,)), ("'orders', a str", "a Stream")),  # type: ignore[arg-type]
    "unknown pipeline": (
        lambda: find_pipeline("fligths"),
        ("'fligths'", "declared are: flights", "demo/pipelin"),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_work_is_refused_when_it_is_declared(case: str) -> None:
    declare, words = REFUSED[case]
    with pytest.raises(DeclarationError) as refused:
        declare()
    assert isinstance(refused.value, StreamingError)
    assert [word for word in words if word not in str(refused.value)] == []


def test_what_can_work_is_taken() -> None:
    assert replace(STREAM, event_time="made_at").columns == ("id", "amount", "ts", "at", "day", "made_at")
    assert replace(STREAM, rules=(Rule("fresh", "at <= _ingested_at"),)).rules[0].name == "fresh"
    assert replace(VIEW, by=(), where="amount > 1").columns == ("window_start", "window_end", "orders")
    assert replace(STREAM, derived={"twice": "amount * 2", "more": "twice + 1"}).columns[-2:] == ("twice", "more")
    assert PIPELINE.view() is PIPELINE.view("by_hour") is VIEW


def test_a_declaration_is_a_value_that_nobody_can_change() -> None:
    assert replace(STREAM) == STREAM
    with pytest.raises(FrozenInstanceError):
        STREAM.name = "other"  # type: ignore[misc]
    with pytest.raises(TypeError):
        STREAM.derived["x"] = "id"  # type: ignore[index]
    with pytest.raises(TypeError):
        VIEW.aggregates["x"] = agg.count()  # type: ignore[index]

    given = {"orders": agg.count()}
    view = replace(VIEW, aggregates=given)
    given["more"] = agg.count()
    assert list(view.aggregates) == ["orders"]


def test_every_declared_pipeline_is_found_by_its_name() -> None:
    pipelines = declared_pipelines()
    assert "flights" in pipelines
    assert {name: find_pipeline(name).name for name in pipelines} == {name: name for name in pipelines}
