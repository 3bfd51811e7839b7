"""Readings of three cities brought together: all rows of all of them, with copies and in no order."""

from dataclasses import replace

from streaming import BoundedOutOfOrderness, Files, Json, Pipeline, Selected, Stream

paris = Stream(
    name="paris",
    description="One row per reading.",
    source=Files("landing/paris"),
    format=Json("id string not null, at timestamp not null, temperature double not null"),
    event_time="at",
    clock=BoundedOutOfOrderness("5 seconds"),
)
tokyo = replace(paris, name="tokyo", source=Files("landing/tokyo"))
rio = replace(paris, name="rio", source=Files("landing/rio"))

all_cities = Selected(name="all_cities", of=(paris, tokyo, rio))

pipeline = Pipeline(name="cities", streams=(paris, tokyo, rio), operators=(all_cities,))
