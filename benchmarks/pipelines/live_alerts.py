"""The pipeline of the latency of keyed functions: what one tells of each row, and windows over them to compare with."""

from dataclasses import replace

from benchmarks.compare.jumps import jumps_of
from benchmarks.pipelines.live import live, per_window
from streaming import Files, Pipeline

watched = replace(live, name="watched", source=Files("landing/watched", files_per_batch=100))

alerts = jumps_of(watched, "live_alerts")
counts = replace(per_window, name="watched_counts", of=watched)

pipeline = Pipeline(name="live_alerts", streams=(watched,), operators=(alerts, counts), trigger="100 milliseconds")
