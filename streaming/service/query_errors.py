"""What it means when a streaming query ends with an error, in the words of whoever has to act on it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from streaming.base import QueryFailed, StreamingError
from streaming.log import QUERY
from streaming.service.spark_errors import explain_known
from streaming.service.watch import StopRequested
from streaming.sources import vanished
from streaming.spark import native_drops


def await_queries(queries: Sequence[StreamingQuery]) -> None:
    """Wait until all have ended; where one fails, the others are stopped.

    Raises:
        SourceError: a file vanished while it was read.
        QueryFailed: a query ended with an error.
    """
    try:
        for query in queries:
            query.awaitTermination()
    except StreamingQueryException as error:
        raise explain(error, query) from error
    finally:
        for query in queries:
            if query.isActive:
                query.stop()


def explain(error: StreamingQueryException, query: StreamingQuery) -> StreamingError:
    """The error to show instead of Spark's, without the traces around what was raised in the batch of `query`."""
    text, name = str(error), query.name or ""
    if StopRequested.__name__ in text:
        return QueryFailed(f"query {name!r} was stopped before its next batch, as was asked.")
    missing = re.search(r"FILE_NOT_EXIST\][^\n]*? file (.+?)\. File does|vanished [^\n]*?: (.+?)\. Put it back", text)
    if missing:
        return vanished(missing[1] or missing[2])
    stream, _, operator = name.rpartition(".")
    place = f"the log of stream {stream!r}" if operator == QUERY else f"view {operator!r}"
    explanation = explain_known(text, place, rebuild=f"`tidemark rebuild {operator}`")
    if explanation is not None:
        return QueryFailed(explanation)
    return QueryFailed(f"{_cause(text)} Nothing is lost: correct the cause and run again, it goes on where it stopped.")


def _cause(text: str) -> str:
    """What was raised in a batch, without Python's and Java's traces around it."""
    lines = [line for line in text.split("=== Streaming Query ===")[0].splitlines() if line.strip()]
    frames = [number for number, line in enumerate(lines) if line.startswith('  File "')]
    if not frames:
        return lines[0].strip()
    query = lines[0].partition(" terminated with exception")[0]
    raised = takewhile(lambda line: not re.match(r"\s+at |\s*SQLSTATE|JVM stacktrace", line), lines[frames[-1] + 1 :])
    return f"{query} failed: {' '.join(line for line in raised if not line.startswith('  '))}."


def refuse_native_drops(query: StreamingQuery) -> None:
    """The tripwire of the law that Spark itself drops nothing.

    Raises:
        QueryFailed: it did.
    """
    dropped = native_drops(query)
    if dropped:
        view = (query.name or "").rpartition(".")[2]
        raise QueryFailed(
            f"Spark itself dropped {dropped} groups of view {view!r}, which the stamped clock must prevent; the first "
            f"results are incomplete. Build them anew with `tidemark rebuild {view}`, and report this."
        )
