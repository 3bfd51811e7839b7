"""People: tuples become records, adults are kept, and keys are computed from several fields and from nested ones."""

from streaming import BoundedOutOfOrderness, Files, Json, Pipeline, Selected, Side, Stream

people = Stream(
    name="people",
    description="One row per person, at the time at which it was read.",
    source=Files("landing/people"),
    format=Json(
        "name string not null, age int not null, birthday struct<year: int, month: int, day: int>, "
        "address struct<street: string, zip: string>"
    ),
    derived={"read_at": "_ingested_at"},
    event_time="read_at",
    clock=BoundedOutOfOrderness("0 seconds"),
)

adults = Selected(
    name="adults",
    of=people,
    select=("name", "age"),
    where="age > 18",
    sides={
        "records": Side(select={"person": "struct(name, age)"}),
        "keyed": Side(
            select={
                "name": "name",
                "second_and_third": "struct(age, birthday)",
                "zip": "address.zip",
                "whole_birthday": "birthday",
            }
        ),
    },
)

pipeline = Pipeline(stream=people, views=(adults,))
