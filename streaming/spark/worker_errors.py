"""Errors of users' functions in Spark's Python workers, as they were told there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from streaming.base import FunctionError, TidemarkError

_UNDERLINED = re.compile(r"== SQL \(line \d+, position \d+\) ==\n(?P<sql>[^\n]*)\n(?P<before> *)(?P<marks>\^+)")
_OF_CALL = re.compile(r"^An error occurred while calling \S+\n: ")


def cause_in_words(error: BaseException | str) -> str:
    """An error of Spark in one line: what was raised in a Python worker, or why and for which expression."""
    text = str(error).strip()
    told = raised_in_workers(text)
    if told is not None:
        return told
    if "Traceback (most recent call last):" in text:
        traced = re.split(r"\n\s*at |\n\s*JVM stacktrace", text)[0].splitlines()
        raised = [line for line in traced if line.strip() and not line.startswith((" ", "\t"))]
        return raised[-1].rstrip(".")
    # The errors of Py4J begin with the call.
    line = _OF_CALL.sub("", text).split("\n", 1)[0] or type(error).__name__
    line = re.sub(r"^.*?(?=\[[A-Z_.]+\])", "", line)
    line = re.split(r" If necessary set | SQLSTATE|; line ", line)[0].strip().rstrip(".")
    expression = failed_expression(text)
    return line if expression is None else f"{line}, in `{expression}`"


def failed_expression(text: str) -> str | None:
    """The part of a SQL expression for which Spark says in `text` that it cannot be computed; None where it does not.

    Of several lines it is the first.
    """
    match = _UNDERLINED.search(text)
    if match is None:
        return None
    begin = len(match["before"])
    return match["sql"][begin : begin + len(match["marks"])].strip() or None


@contextmanager
def function_errors() -> Iterator[None]:
    """Raise what a function raised in Spark's workers as it was told there, without the traces around it.

    Raises:
        FunctionError: instead of Spark's error.
    """
    from pyspark.errors import PythonException

    try:
        yield
    except PythonException as error:
        told = raised_in_workers(str(error))
        if told is None:
            raise
        raise FunctionError(told) from error


def raised_in_workers(text: str, kind: type[TidemarkError] = FunctionError) -> str | None:
    """The error of a `kind` in Spark's workers as it was told there, of Spark's `text`; None where there is none."""
    match = re.search(rf"^(?:\w+\.)+{kind.__name__}: (.*)$", text, re.MULTILINE)
    return None if match is None else match[1].strip()
