"""The cost of a watermark without delay: the same readings with a clock that waits for nobody, and with a second."""

from dataclasses import replace

from streaming import (
    Ascending,
    BoundedOutOfOrderness,
    Files,
    Json,
    Pipeline,
    Stream,
    Tumbling,
    Windowed,
    agg,
    epoch_millis,
)

hasty_readings = Stream(
    name="hasty_readings",
    description="One row per reading of a sensor, taken to come in order.",
    source=Files("landing/hasty_readings"),
    format=Json("id string not null, timestamp bigint not null"),
    derived={"event_time": epoch_millis("timestamp")},
    event_time="event_time",
    clock=Ascending(),
)
patient_readings = replace(
    hasty_readings,
    name="patient_readings",
    description="One row per reading of a sensor, at most a second out of order.",
    source=Files("landing/patient_readings"),
    clock=BoundedOutOfOrderness("1 second"),
)

hasty_counts = Windowed(
    name="count_by_sensor",
    of=hasty_readings,
    by=("id",),
    window=Tumbling("5 seconds"),
    aggregates={"readings": agg.count()},
)
patient_counts = replace(hasty_counts, of=patient_readings)

hasty = Pipeline(stream=hasty_readings, views=(hasty_counts,))
patient = Pipeline(stream=patient_readings, views=(patient_counts,))
