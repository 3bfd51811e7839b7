"""The pipeline of the midnight measure: windows of a day whose end is told by the environment."""

import os
from dataclasses import replace

from benchmarks.pipelines.live import live, per_window
from streaming import Files, Pipeline, Tumbling

MIDNIGHT = "TIDEMARK_BENCH_MIDNIGHT"
"""Seconds since the epoch at which a day is to end, so that nobody has to wait for a real midnight."""
_A_DAY = 86_400

daily = replace(live, name="daily", source=Files("landing/daily", files_per_batch=5))
_OFFSET = int(os.environ.get(MIDNIGHT, "0")) % _A_DAY
per_day = replace(per_window, name="daily_per_day", of=daily, window=Tumbling("1 day", offset=f"{_OFFSET} seconds"))
pipeline = Pipeline(daily, (per_day,), trigger="500 milliseconds")
