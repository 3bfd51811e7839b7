"""Five and fifteen seconds of a sensor's readings: extremes, averages, the typical value."""

import pandas as pd

from streaming import (
    Aggregate,
    BoundedOutOfOrderness,
    Files,
    Json,
    Pipeline,
    Stream,
    Tumbling,
    Windowed,
    WindowFunction,
    agg,
    epoch_millis,
)

temperatures = Stream(
    name="temperatures",
    description="One row per reading of a sensor.",
    source=Files("landing/temperatures"),
    format=Json("id string not null, timestamp bigint not null, temperature double"),
    derived={"event_time": epoch_millis("timestamp")},
    event_time="event_time",
    clock=BoundedOutOfOrderness("0 seconds"),
)

lowest = Windowed(
    name="lowest",
    of=temperatures,
    by=("id",),
    window=Tumbling("15 seconds"),
    aggregates={"lowest": agg.minimum("temperature")},
)

average = Windowed(
    name="average",
    of=temperatures,
    by=("id",),
    window=Tumbling("15 seconds"),
    # An aggregate of one's own is SQL; Spark keeps sum and count for it, and divides at the end.
    aggregates={"average": Aggregate("sum(temperature) / count(temperature)", "sum over count of temperature")},
)


def _extremes(rows: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"lowest": [rows["temperature"].min()], "highest": [rows["temperature"].max()]})


extremes_of_all_rows = Windowed(
    name="extremes_of_all_rows",
    of=temperatures,
    by=("id",),
    window=Tumbling("5 seconds"),
    function=WindowFunction(_extremes, returns="lowest double, highest double"),
)

extremes = Windowed(
    name="extremes",
    of=temperatures,
    by=("id",),
    window=Tumbling("5 seconds"),
    aggregates={"lowest": agg.minimum("temperature"), "highest": agg.maximum("temperature")},
)

typical = Windowed(
    name="typical",
    of=temperatures,
    by=("id",),
    window=Tumbling("5 seconds"),
    aggregates={"median": agg.median("temperature"), "most_frequent": agg.mode("temperature")},
)

pipeline = Pipeline(stream=temperatures, views=(lowest, average, extremes_of_all_rows, extremes, typical))
