"""The peculiarities of a pipeline with control streams: the order of ingestion, the pinned batches, the watermark."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from streaming.clocks import joint_watermark
from streaming.declare import Pipeline, Stream
from streaming.log import Batch


def ingest_order(pipeline: Pipeline) -> tuple[tuple[Stream, ...], ...]:
    """The streams, those together that a drain takes in together: rules are there before the rows they are for."""
    controls = pipeline.control_streams
    return tuple(filter(None, (controls, _others(pipeline))))


def newest_pinned(pipeline: Pipeline, stream: Stream, heads: Mapping[str, Batch]) -> dict[str, int]:
    """The newest batch of each control stream that the stream pins, -1 where it has none; `heads` are by stream."""
    controls = [control.name for control in pipeline.pinned_by(stream)]
    return {name: heads[name].number if name in heads else -1 for name in controls}


def least_watermark(pipeline: Pipeline, heads: Mapping[str, Batch]) -> datetime | None:
    """The least watermark of the streams but for control streams, which may be silent; None until all have one."""
    others = _others(pipeline)
    return joint_watermark(heads[each.name].after.watermark if each.name in heads else None for each in others)


def _others(pipeline: Pipeline) -> tuple[Stream, ...]:
    return tuple(stream for stream in pipeline.streams if stream not in pipeline.control_streams)
