"""The errors that end a streaming query: known ones, those that pass by themselves, and what is told of them."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile

from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from streaming.base import (
    FencedError,
    FunctionError,
    LeaseError,
    LogError,
    QueryFailed,
    RewrittenError,
    SourceError,
    StoreError,
    StreamingError,
)
from streaming.declare import Delivery, Operator, Pipeline, Stream
from streaming.log import QUERY
from streaming.service.watch import Paused, StopRequested
from streaming.spark import cause_in_words, failed_expression, raised_in_workers

_GOES_ON_ONCE_CORRECTED = "Nothing is lost: correct the cause and run again, it goes on where it stopped."


Explains = Callable[[StreamingQueryException, StreamingQuery], StreamingError]
"""Gives the error to show instead of the one that a query ended with."""
_GOES_ON = "Nothing is lost: it goes on where it stopped."
_CAUSES = {
    ("No space left on device", "Disk quota exceeded"): "the disk is full: free some space",
    (
        "Permission denied",
        "AccessControlException",
        "Read-only file system",
        "Operation not permitted",
        # Java is not told why; a folder that is missing would have been made.
        "Mkdirs failed to create",
    ): "a file may not be read or written: give the permission back",
    ("Python worker failed to connect back",): "a Python worker did not start in time: give the machine some room",
    (
        "Connection refused",
        "Connection reset",
        "UnknownHostException",
        "Temporary failure in name resolution",
        # Arrow's client of S3.
        "AWS Error NETWORK_CONNECTION",
    ): "the storage or a service does not answer: bring it back",
}

_OF_A_VALUE = re.compile(r"SQLSTATE: (22|P0)")
"""Spark's errors that a value is to blame for (SQL:2016, class 22: data exception; P0: raised by the expression)."""


def transient_cause(error: BaseException) -> str | None:
    """The cause and the remedy of an error that no batch is to blame for; None for any other.

    The stream goes on by itself once the cause is gone: nothing is lost, and nothing is there twice.
    """
    if isinstance(error, SourceError | StoreError | RewrittenError):
        return str(error)
    text = str(error)
    # Such a text quotes the value, which may be any text.
    if _OF_A_VALUE.search(text):
        return None
    for signs, cause in _CAUSES.items():
        for sign in signs:
            if sign in text:
                line = next(line.strip() for line in text.splitlines() if sign in line)
                return f"{cause}, and the stream goes on by itself ({line[:300]})"
    return None


_OF_THE_PROCESS = (OSError, MemoryError, DeltaError, FencedError, LeaseError, LogError, SourceError, RewrittenError)
_SPARK_IS_GONE = (
    "OutOfMemoryError",
    "GC overhead limit exceeded",
    "SparkContext was shut down",
    "SparkContext has been shutdown",
    "stopped SparkContext",
)


def _ends_the_process(error: BaseException) -> bool:
    """True for an error in a step that is of the storage, of Spark or of who holds the pipeline, and so of all.

    What a user's function raised is its operator's own, also where that is a connection that was refused.
    """
    text = str(error)
    if isinstance(error, FunctionError) or raised_in_workers(text) is not None or _OF_A_VALUE.search(text):
        return False
    if isinstance(error, _OF_THE_PROCESS) or transient_cause(error) is not None:
        return True
    if isinstance(error, Py4JError) and not isinstance(error, Py4JJavaError):
        return True
    return any(sign in text for sign in _SPARK_IS_GONE)


@dataclass(frozen=True)
class _KnownError:
    """An error that is known by `sign`, a pattern in Spark's text.

    `meaning` and `remedy` may speak of `{place}` (such as "view 'by_hour'") and `{detail}` (the line of Spark's
    text that has the sign).
    """

    sign: str
    meaning: str
    remedy: str


_KNOWN = (
    _KnownError(
        r"CHECKPOINT_FILE_CHECKSUM_VERIFICATION_FAILED|STREAMING_CHECKPOINT_MISSING_METADATA_FILE",
        "files of the checkpoint of {place} are missing or damaged ({detail}).",
        "Give them back from a backup.",
    ),
    _KnownError(
        r"\[(PATH_NOT_FOUND|FAILED_READ_FILE|CANNOT_READ_FILE_FOOTER)|Failed to open local file '[^']*\.parquet'"
        r"|is not a Parquet file",
        "a file that {place} reads is gone or damaged ({detail}).",
        "`tidemark doctor NAME` names the table that it is of and what to do: all but the log is built anew by "
        "`tidemark rebuild`.",
    ),
    _KnownError(
        r"CONCURRENT_QUERY|CONCURRENT_STREAM_LOG_UPDATE",
        "another process runs {place} too, on the same checkpoint.",
        f"Let one of them run alone; `tidemark status` shows who holds what. {_GOES_ON}",
    ),
    _KnownError(
        r"OutOfMemoryError|GC overhead limit exceeded",
        "Spark ran out of memory in {place} ({detail}).",
        "Raise TIDEMARK_SPARK_DRIVER_MEMORY (2g by default), or let fewer rows into a batch with files_per_batch or "
        f"bytes_per_batch of the source. {_GOES_ON}",
    ),
    _KnownError(
        r"ModuleNotFoundError: No module named",
        "a Python worker of {place} cannot import what a function of it needs ({detail}).",
        f"Put it on the PYTHONPATH of the process that runs the pipeline. {_GOES_ON}",
    ),
    _KnownError(
        r"Python worker exited unexpectedly|Python worker failed to connect back",
        "a Python worker of {place} died ({detail}).",
        f"Look at the function that it ran, and at the memory of the machine. {_GOES_ON}",
    ),
    _KnownError(
        r"\[(DIVIDE_BY_ZERO|CAST_INVALID_INPUT|CAST_OVERFLOW|(BINARY_|INTERVAL_)?ARITHMETIC_OVERFLOW"
        r"|NUMERIC_VALUE_OUT_OF_RANGE|INVALID_ARRAY_INDEX|CANNOT_PARSE_TIMESTAMP|DATETIME_(OVERFLOW|FIELD))",
        "an expression of {place} cannot be computed for some row: {detail}.",
        f"Correct it in the declaration, for example with try_divide or try_cast, and run again. {_GOES_ON}",
    ),
)


def explain_known(text: str, place: str) -> str | None:
    """The meaning of Spark's `text` for `place`, and the remedy, as one paragraph; None where it is not known."""
    raised = raised_in_workers(text)
    if raised is not None:
        return raised[0].upper() + raised[1:]
    for kind in _KNOWN:
        match = re.search(kind.sign, text)
        if match is not None:
            detail, expression = _line_at(text, match.start()), failed_expression(text)
            detail = detail if expression is None else f"{detail}, in `{expression}`"
            words = f"{kind.meaning} {kind.remedy}".format(place=place, detail=detail)
            return words[0].upper() + words[1:]
    return None


def _line_at(text: str, position: int) -> str:
    """The line around a position, without what Spark says of its settings and of SQL states."""
    start, end = text.rfind("\n", 0, position) + 1, text.find("\n", position)
    return cause_in_words(text[start : None if end < 0 else end])


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
    return QueryFailed(f"{_cause(text)} {_GOES_ON_ONCE_CORRECTED}")


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
        if not isinstance(error, PySparkException | Py4JJavaError) and _ends_the_process(error):
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
        if _ends_the_process(error):
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
    if isinstance(operator, Delivery) and isinstance(operator.of, Operator) and operator.what == "late":
        # Which rows are late is computed by the declaration of the view.
        what = f"{operator.of.kind_name} {operator.of.name!r}, whose late rows {what} sends,"
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
