"""The batches that a pipeline has committed, whatever its process has told of them."""

from __future__ import annotations

from streaming import Lake, Pipeline
from streaming.log import head


def newest_in_logs(lake: Lake, pipeline: Pipeline) -> int:
    """The greatest number of a batch in the logs of a pipeline, -1 for none."""
    heads = (head(lake, stream) for stream in pipeline.streams)
    return max((batch.number for batch in heads if batch is not None), default=-1)
