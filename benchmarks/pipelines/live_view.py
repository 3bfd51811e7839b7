"""The pipeline of the latency of SQL views: what has come of each key so far, by the rows of one stream."""

from benchmarks.pipelines.live import live
from streaming import Pipeline, View

totals = View(
    "live_totals",
    "select id, count(*) as readings, sum(value) as total, max(at) as newest from live group by id",
    of=(live,),
    key=("id",),
)

pipeline = Pipeline(name="live_view", streams=(live,), operators=(totals,), trigger="100 milliseconds")
