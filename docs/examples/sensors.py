"""Sensor readings in degrees Fahrenheit: converted, averaged per sensor, filtered, split into outputs."""

from streaming import (
    BoundedOutOfOrderness,
    Files,
    Json,
    Pipeline,
    Rule,
    Selected,
    Side,
    Stream,
    Tumbling,
    Windowed,
    agg,
    epoch_millis,
)

sensors = Stream(
    name="sensors",
    description="One row per reading of a sensor.",
    source=Files("landing/sensors"),
    format=Json("id string not null, timestamp bigint not null, temperature double"),
    derived={
        "event_time": epoch_millis("timestamp"),
        "celsius": "(temperature - 32) * 5 / 9",
    },
    event_time="event_time",
    clock=BoundedOutOfOrderness("5 seconds"),
    # Without this rule, readings without a temperature would be counted in no mean, and nobody would notice.
    rules=(Rule("temperature_present", "temperature is not null"),),
)

mean_by_5_seconds = Windowed(
    name="mean_by_5_seconds",
    of=sensors,
    by=("id",),
    window=Tumbling("5 seconds"),
    aggregates={"mean_celsius": agg.mean("celsius")},
)

mean_by_second = Windowed(
    name="mean_by_second",
    of=sensors,
    by=("id",),
    window=Tumbling("1 second"),
    aggregates={"mean_celsius": agg.mean("celsius")},
)

warm = Selected("warm", of=sensors, where="temperature >= 25.0")

monitored = Selected(
    name="monitored",
    description="All readings; beside them, from the same pass, alarms and what ids are made of.",
    of=sensors,
    sides={
        "freezing": Side(where="temperature < 32.0", select={"alarm": "concat('Freezing Alarm for ', id)"}),
        "ids": Side(select=("id",)),
        "parts": Side(
            where="contains(id, '_')",
            select={"kind": "split_part(id, '_', 1)", "number": "try_cast(split_part(id, '_', 2) as int)"},
        ),
    },
)

pipeline = Pipeline(stream=sensors, views=(mean_by_5_seconds, mean_by_second))
