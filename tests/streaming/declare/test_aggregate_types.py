"""An aggregate of values that it cannot take is refused where it is declared, as far as the types are known there."""

from __future__ import annotations

import pytest

from streaming import BoundedOutOfOrderness, Files, Json, Stream, Tumbling, Windowed, agg
from streaming.base.errors import DeclarationError
from streaming.declare.aggregates import Aggregate

STREAM = Stream(
    "typed",
    Files("landing/typed"),
    Json("id string, at timestamp, n bigint, m map<string, int>, ok boolean, d date, xs array<int>, st struct<a: int>"),
    "at",
    BoundedOutOfOrderness("0 seconds"),
)
REFUSED = (
    (agg.median("id"), "the median of id, but id is of type string", "cast(id as double)"),
    (agg.percentile("upper(id)", 0.3), "upper(id) is of type string", "cast(upper(id) as double)"),
    (agg.sum("at"), "at is of type timestamp", "unix_micros(at)"),
    (agg.sum("d"), "d is of type date", "unix_date(d)"),
    (agg.mean("ok"), "ok is of type boolean", "cast(ok as int)"),
    (agg.stddev("xs"), "xs is of type array<int>", "size(xs)"),
    (agg.share("n"), "n is of type bigint, and it takes boolean", "n is not null"),
    (agg.minimum("m"), "m is of type map<string, int>", "size(m)"),
    (agg.maximum("m"), "m is of type map<string, int>", "size(m)"),
    (agg.mode("m"), "m is of type map<string, int>", "size(m)"),
    (agg.count_distinct("m"), "m is of type map<string, int>", "size(m)"),
    (agg.collect("m"), "m is of type map<string, int>", "size(m)"),
    (agg.max_by("id", "m"), "m is of type map<string, int>", "size(m)"),
    (agg.min_by("id", "m"), "m is of type map<string, int>", "size(m)"),
)
TAKEN = (
    *(agg.sum("n"), agg.mean("cast(id as double)"), agg.share("n > 1"), agg.minimum("id"), agg.maximum("_event_time")),
    *(agg.median("interval 1 day"), agg.max_by("m", "n"), agg.first("m"), agg.collect("st"), agg.count_distinct("xs")),
    *(agg.sum("if(ok, 1, 0)"), agg.mean("try_cast(id as decimal(10, 2))"), agg.sum("st.a"), agg.mode("d")),
    agg.stddev("size(xs)"),
)


def view(aggregate: Aggregate) -> Windowed:
    return Windowed("by_hour", STREAM, Tumbling("1 hour"), {"v": aggregate})


@pytest.mark.parametrize(("aggregate", "why", "instead"), REFUSED, ids=lambda each: getattr(each, "meaning", ""))
def test_the_type_and_what_is_taken_are_named_and_what_to_write_instead(
    aggregate: Aggregate, why: str, instead: str
) -> None:
    with pytest.raises(DeclarationError) as refused:
        view(aggregate)
    text = str(refused.value)
    assert text.startswith("aggregate 'v' of view 'by_hour' is the ") and why in text
    assert text.endswith(f"such as {instead!r}.")


@pytest.mark.parametrize("aggregate", TAKEN, ids=lambda each: each.meaning)
def test_what_an_aggregate_takes_is_taken(aggregate: Aggregate) -> None:
    assert view(aggregate).aggregates["v"] == aggregate
