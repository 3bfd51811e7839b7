"""The errors that end a streaming query, explained in the words of whoever has to act on them."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from streaming.base import QueryFailed, StreamingError
from streaming.declare import Delivery, Operator, Pipeline, Stream
from streaming.log import QUERY
from streaming.service.spark_errors import explain_known
from streaming.service.transient_errors import ends_the_process
from streaming.service.watch import Paused, StopRequested
from streaming.spark import cause_in_words, failed_expression

_GOES_ON = "Nothing is lost: correct the cause and run again, it goes on where it stopped."


Explains = Callable[[StreamingQueryException, StreamingQuery], StreamingError]
"""Gives the error to show instead of the one that a query ended with."""


def await_queries(queries: Sequence[StreamingQuery], explains: Explains | None = None) -> None:
    """Wait until all have ended; where one fails, the others are stopped. `explains` is `explain` if left out.

    Raises:
        SourceError: something of a source was lost while it was read.
        QueryFailed: a query ended with an error.
    """
    try:
        for query in queries:
            query.awaitTermination()
    except StreamingQueryException as error:
        raise (explains or explain)(error, query) from error
    finally:
        for query in queries:
            if query.isActive:
                query.stop()


def explain(error: StreamingQueryException, query: StreamingQuery) -> StreamingError:
    """The error to show instead of Spark's, without the traces around what was raised in the batch of `query`."""
    text, name = str(error), query.name or ""
    if stop_was_asked(error):
        return QueryFailed(f"query {name!r} was stopped before its next batch, as was asked.")
    stream = name.rpartition(".")[0]
    explanation = explain_known(text, f"the log of stream {stream!r}")
    if explanation is not None:
        return QueryFailed(explanation)
    return QueryFailed(f"{_cause(text)} {_GOES_ON}")


def stop_was_asked(error: StreamingQueryException) -> bool:
    """True if the query ended because it was asked to, between two batches."""
    return StopRequested.__name__ in str(error)


def _cause(text: str) -> str:
    """The error that was raised in a batch, without Python's and Java's traces around it."""
    lines = [line for line in text.split("=== Streaming Query ===")[0].splitlines() if line.strip()]
    frames = [number for number, line in enumerate(lines) if line.startswith('  File "')]
    if not frames:
        return lines[0].strip()
    query = lines[0].partition(" terminated with exception")[0]
    raised = takewhile(lambda line: not re.match(r"\s+at |\s*SQLSTATE|JVM stacktrace", line), lines[frames[-1] + 1 :])
    return f"{query} failed: {' '.join(line for line in raised if not line.startswith('  '))}."


@contextmanager
def explained(operator: Operator | Delivery) -> Iterator[None]:
    """Explain what goes wrong in a step of `operator`, or in a delivery, in the words of whoever has to act on it.

    Raises:
        QueryFailed: instead of Spark's errors, and of what nobody foresaw: a target of a user's own may raise anything.
            The errors of this platform, and those of the process, are raised as they are.
    """
    try:
        yield
    except (StreamingError, Paused, StopRequested):
        raise
    except Exception as error:
        if not isinstance(error, PySparkException | Py4JJavaError) and ends_the_process(error):
            raise
        raise QueryFailed(_explanation(operator, error)) from error


@contextmanager
def pausing(
    operator: Operator, where: str = "", find: Callable[[str], str | None] = lambda expression: None
) -> Iterator[None]:
    """Pause the operator where something fails for it alone; `where` says which batches of which logs are followed.

    `find` is handed the expression that cannot be computed, if Spark tells, and says of which row.

    Raises:
        Paused: with the reason in the words of whoever has to act on it. What fails for all operators, such as storage
            that is away, is raised as it is.
    """
    try:
        yield
    except (Paused, StopRequested):
        raise
    except Exception as error:
        if ends_the_process(error):
            raise
        if isinstance(error, StreamingError):
            raise Paused(with_more(error, where)) from error
        expression = failed_expression(str(error)) if isinstance(error, PySparkException | Py4JJavaError) else None
        row = None if expression is None else find(expression)
        reason = QueryFailed(_explanation(operator, error))
        reason.__cause__ = error
        raise Paused(with_more(reason, where, row or "")) from error


def with_more(error: StreamingError, *sentences: str) -> StreamingError:
    """The error with further sentences in its text, those that are not empty."""
    told = copy.copy(error)
    told.args = (" ".join([str(error), *filter(None, sentences)]), *error.args[1:])
    told.__cause__ = error.__cause__
    return told


def _explanation(operator: Operator | Delivery, error: Exception) -> str:
    what = f"{operator.kind_name} {operator.name!r}"
    known = explain_known(str(error), what)
    if known is not None:
        return known
    of_spark = isinstance(error, PySparkException | Py4JJavaError)
    return (
        f"a step of {what} failed: {'' if of_spark else f'{type(error).__name__}: '}{cause_in_words(error)}. {_GOES_ON}"
    )


def ingest_query(pipeline: Pipeline, stream: Stream) -> str:
    """The name of the query from a stream's source to its log, in progress and status."""
    return QUERY if len(pipeline.streams) == 1 else f"{stream.name}.{QUERY}"


def ingested_stream(pipeline: Pipeline, query: str) -> Stream | None:
    """The stream whose log the query of this name writes; None for an operator's query."""
    return next((stream for stream in pipeline.streams if ingest_query(pipeline, stream) == query), None)
