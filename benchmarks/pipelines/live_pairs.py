"""The pipeline of the latency of joins: pairs of two streams, and windows over one of them to compare with."""

from dataclasses import replace

from benchmarks.pipelines.live import live, per_window
from streaming import Files, Joined, Pipeline

ours = replace(live, name="ours", source=Files("landing/ours", files_per_batch=100))
theirs = replace(live, name="theirs", source=Files("landing/theirs", files_per_batch=100))

pairs = Joined(
    "live_pairs", ours, theirs, ("id",), ("-4 seconds", "4 seconds"), select=("id", "left_value", "right_value")
)
counts = replace(per_window, name="live_counts", of=ours)

pipeline = Pipeline(name="live_joins", streams=(ours, theirs), operators=(pairs, counts), trigger="100 milliseconds")
