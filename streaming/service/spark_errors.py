"""The errors of Spark and Delta that are known to end a query or a command, with what they mean and what to do."""

from __future__ import annotations

import re
from dataclasses import dataclass

from streaming.spark import cause_in_words, failed_expression, raised_in_workers

_GOES_ON = "Nothing is lost: it goes on where it stopped."


@dataclass(frozen=True)
class KnownError:
    """An error that is known by `sign`, a pattern in Spark's text.

    `meaning` and `remedy` may speak of `{place}` (such as "view 'by_hour'") and `{detail}` (the line of Spark's
    text that has the sign).
    """

    sign: str
    meaning: str
    remedy: str


_KNOWN = (
    KnownError(
        r"CHECKPOINT_FILE_CHECKSUM_VERIFICATION_FAILED|STREAMING_CHECKPOINT_MISSING_METADATA_FILE",
        "files of the checkpoint of {place} are missing or damaged ({detail}).",
        "Give them back from a backup.",
    ),
    KnownError(
        r"\[(PATH_NOT_FOUND|FAILED_READ_FILE|CANNOT_READ_FILE_FOOTER)|Failed to open local file '[^']*\.parquet'"
        r"|is not a Parquet file",
        "a file that {place} reads is gone or damaged ({detail}).",
        "`tidemark doctor NAME` names the table that it is of and what to do: all but the log is built anew by "
        "`tidemark rebuild`.",
    ),
    KnownError(
        r"CONCURRENT_QUERY|CONCURRENT_STREAM_LOG_UPDATE",
        "another process runs {place} too, on the same checkpoint.",
        f"Let one of them run alone; `tidemark status` shows who holds what. {_GOES_ON}",
    ),
    KnownError(
        r"OutOfMemoryError|GC overhead limit exceeded",
        "Spark ran out of memory in {place} ({detail}).",
        "Raise TIDEMARK_SPARK_DRIVER_MEMORY (2g by default), or let fewer rows into a batch with files_per_batch or "
        f"bytes_per_batch of the source. {_GOES_ON}",
    ),
    KnownError(
        r"ModuleNotFoundError: No module named",
        "a Python worker of {place} cannot import what a function of it needs ({detail}).",
        f"Put it on the PYTHONPATH of the process that runs the pipeline. {_GOES_ON}",
    ),
    KnownError(
        r"Python worker exited unexpectedly|Python worker failed to connect back",
        "a Python worker of {place} died ({detail}).",
        f"Look at the function that it ran, and at the memory of the machine. {_GOES_ON}",
    ),
    KnownError(
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
