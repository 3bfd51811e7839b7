"""What is said of a row whose event time was sent, and yet is none."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from docs.examples.late_counts import readings
from streaming.log.validate import RowValidator
from tests.support.instants import NOW, T0, ms

PAYLOADS = {
    '{"id": "a"}': "required: timestamp is missing",
    '{"id": "a", "timestamp": 9223372036854775807}': (
        "event_time: event_time cannot be made of timestamp=9223372036854775807"
    ),
    '{"id": "a", "timestamp": -62135596800001}': "event_time: event_time cannot be made of timestamp=-62135596800001",
    '{"id": "a", "timestamp": -62135596800000}': "event_time: event_time lies outside the years 100 to 9899",
    f'{{"id": "a", "timestamp": {ms(T0)}}}': None,
}


def test_epoch_milliseconds_out_of_range_are_told_as_what_they_are_and_not_as_missing(spark: SparkSession) -> None:
    raw = spark.createDataFrame([(payload.encode(),) for payload in PAYLOADS], "_raw binary")
    located = raw.withColumn("_origin", F.lit(None).cast(readings.source.origin))
    rows = RowValidator(readings)(readings.format.parse(located), NOW).select("_rejected", "_raw").collect()
    reasons = [None if row["_rejected"] is None else row["_rejected"][0] for row in rows]
    assert reasons == list(PAYLOADS.values())
