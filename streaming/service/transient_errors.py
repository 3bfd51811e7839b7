"""Causes that lie outside of a batch, and what they are called: when they are over, the batch passes."""

from __future__ import annotations

import re

from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JError, Py4JJavaError

from streaming.base import FencedError, FunctionError, LeaseError, LogError, RewrittenError, SourceError, StoreError
from streaming.spark import raised_in_workers

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


def ends_the_process(error: BaseException) -> bool:
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
