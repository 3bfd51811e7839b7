"""Errors of users' functions in Spark's Python workers, as they were told there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PythonException

from streaming.base import FunctionError


@contextmanager
def function_errors() -> Iterator[None]:
    """What a function raised in Spark's workers as it was told there, without the traces around it.

    Raises:
        FunctionError: instead of Spark's error.
    """
    try:
        yield
    except PythonException as error:
        told = raised_in_workers(str(error))
        if told is None:
            raise
        raise FunctionError(told) from error


def raised_in_workers(text: str) -> str | None:
    """What a function raised in Spark's workers as it was told there, of Spark's `text`; None where none did."""
    match = re.search(rf"^(?:\w+\.)+{FunctionError.__name__}: (.*)$", text, re.MULTILINE)
    return None if match is None else match[1].strip()
