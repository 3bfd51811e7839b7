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
        match = re.search(rf"{FunctionError.__name__}: (.*)", str(error))
        if match is None:
            raise
        raise FunctionError(match[1]) from error
