"""The names of the queries that write logs, by which progress and status speak of them."""

from __future__ import annotations

from streaming.declare import Pipeline, Stream
from streaming.log import QUERY


def ingest_query(pipeline: Pipeline, stream: Stream) -> str:
    """What the query from a stream's source to its log is called in progress and status."""
    return QUERY if len(pipeline.streams) == 1 else f"{stream.name}.{QUERY}"


def ingested_stream(pipeline: Pipeline, query: str) -> Stream | None:
    """The stream whose log the query of this name writes; None for an operator's query."""
    return next((stream for stream in pipeline.streams if ingest_query(pipeline, stream) == query), None)
