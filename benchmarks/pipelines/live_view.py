"""The pipeline of the latency of SQL views: what has come of each key so far, by the rows of one stream."""

from dataclasses import replace

from benchmarks.pipelines.live import live
from streaming import Files, Pipeline, View

totalled = replace(live, name="totalled", source=Files("landing/totalled", files_per_batch=100))

totals = View(
    "live_totals",
    "select id, count(*) as readings, sum(value) as total, max(at) as newest from totalled group by id",
    of=(totalled,),
    key=("id",),
)

pipeline = Pipeline(name="live_view", streams=(totalled,), operators=(totals,), trigger="100 milliseconds")
