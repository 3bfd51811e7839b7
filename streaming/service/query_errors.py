"""What it means when a streaming query ends with an error, in the words of whoever has to act on it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from streaming.base import QueryFailed, StreamingError
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
    text = str(error)
    if re.search(r"DELTA_MISSING_FILES_UNEXPECTED_VERSION|DELTA_VERSION_NOT_FOUND", text):
        return QueryFailed(
            f"entries of the event log that {query.name!r} has not read yet were cleaned away; `maintain` leaves them "
            "alone for every view of its pipeline. Views are functions of the log: delete the view's table and "
            "checkpoint and run again."
        )
    missing = re.search(r"FILE_NOT_EXIST\][^\n]*? file (.+?)\. File does|vanished [^\n]*?: (.+?)\. Put it back", text)
    if missing:
        return vanished(missing[1] or missing[2])
    return QueryFailed(f"{_cause(text)} Nothing is lost: correct the cause and run again, it goes on where it stopped.")


def _cause(text: str) -> str:
    """What was raised in a batch, without Python's and Java's traces around it."""
    told = [line for line in text.split("=== Streaming Query ===")[0].splitlines() if line.strip()]
    frames = [number for number, line in enumerate(told) if line.startswith('  File "')]
    if not frames:
        return told[0].strip()
    query = told[0].partition(" terminated with exception")[0]
    raised = takewhile(lambda line: not re.match(r"\s+at |\s*SQLSTATE|JVM stacktrace", line), told[frames[-1] + 1 :])
    return f"{query} failed: {' '.join(line for line in raised if not line.startswith('  '))}."


def refuse_native_drops(query: StreamingQuery) -> None:
    """The tripwire of the law that Spark itself drops nothing.

    Raises:
        QueryFailed: it did.
    """
    dropped = native_drops(query)
    if dropped:
        raise QueryFailed(
            f"Spark itself dropped {dropped} groups in query {query.name!r}, which the stamped clock must prevent; the "
            "first results are incomplete. Delete the view's table and checkpoint, run again, and report this."
        )
