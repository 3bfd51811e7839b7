"""The errors of Spark and Delta that a query is known to end with, each with what it means here and what to do."""

from __future__ import annotations

import re
from dataclasses import dataclass

_GOES_ON = "Nothing is lost: it goes on where it stopped."


@dataclass(frozen=True)
class KnownError:
    """An error that is known by `sign`, a pattern in Spark's text.

    `meaning` and `remedy` may speak of `{place}` (such as "view 'by_hour'"), `{rebuild}` (the command) and `{detail}`
    (the line of Spark's text that has the sign).
    """

    sign: str
    meaning: str
    remedy: str


_KNOWN = (
    KnownError(
        r"STATE_STORE_(KEY|VALUE)_SCHEMA_NOT_COMPATIBLE|STATE_STORE_COLUMN_FAMILY_SCHEMA_INCOMPATIBLE"
        r"|STATE_STORE_INVALID_VALUE_SCHEMA_EVOLUTION|STATE_STORE_INVALID_VARIABLE_TYPE_CHANGE"
        r"|STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA|STATE_STORE_\w+_ROW_FORMAT_VALIDATION_FAILURE",
        "{place} keeps its open windows in a form that its declaration no longer has: an aggregate, a key or the kind "
        "of window was changed.",
        "Give the old declaration back, or build the view anew from the log with {rebuild}.",
    ),
    KnownError(
        r"CANNOT_LOAD_STATE_STORE|STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY"
        r"|STATE_STORE_ROW_CHECKSUM_VERIFICATION_FAILED|CHECKPOINT_FILE_CHECKSUM_VERIFICATION_FAILED"
        r"|STATE_STORE_BASE_CHECKPOINT_ID_MISMATCH|STREAMING_CHECKPOINT_MISSING_METADATA_FILE",
        "files of the checkpoint of {place} are missing or damaged ({detail}).",
        "Give them back from a backup, or build the view anew from the log with {rebuild}.",
    ),
    KnownError(
        r"STATE_STORE_INVALID_CONFIG_AFTER_RESTART",
        "the state of {place} was begun with another setting of Spark ({detail}).",
        "Set it back, or build the view anew from the log with {rebuild}.",
    ),
    KnownError(
        r"DELTA_MISSING_FILES_UNEXPECTED_VERSION|DELTA_VERSION_NOT_FOUND|DELTA_LOG_FILE_NOT_FOUND_FOR_STREAMING_SOURCE",
        "entries of the event log that {place} has not read yet were cleaned away; `maintain` leaves them alone for "
        "every view of its pipeline.",
        "Build the view anew from the rows of the log with {rebuild}.",
    ),
    KnownError(
        r"DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE|DELTA_DIFFERENT_DELTA_TABLE",
        "the event log that {place} reads is not the one that it began with.",
        "Give the old log back, or build the view anew from this one with {rebuild}.",
    ),
    KnownError(
        r"DELTA_SCHEMA_CHANGED|DELTA_STREAMING_\w*SCHEMA|DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS",
        "the log got a new column while {place} was reading it.",
        f"Run it again. {_GOES_ON}",
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


def explain_known(text: str, place: str, rebuild: str) -> str | None:
    """What Spark's `text` means for `place`, and what to do, as one paragraph; None where it is not known."""
    for kind in _KNOWN:
        match = re.search(kind.sign, text)
        if match is not None:
            detail = _line_at(text, match.start())
            words = f"{kind.meaning} {kind.remedy}".format(place=place, rebuild=rebuild, detail=detail)
            return words[0].upper() + words[1:]
    return None


def _line_at(text: str, position: int) -> str:
    """The line around a position, without what Spark says of its settings and of SQL states."""
    start, end = text.rfind("\n", 0, position) + 1, text.find("\n", position)
    line = text[start : None if end < 0 else end].strip()
    line = re.sub(r"^.*?(?=\[[A-Z_.]+\])", "", line)
    return re.split(r" If necessary set | SQLSTATE|; line ", line)[0].strip().rstrip(".")
