"""Declarations that cannot be computed of the types of their columns are refused before any row is read."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from streaming.base import DeclarationError
from streaming.log import no_rows
from streaming.operators import OperatorRuntime
from streaming.spark import refusal, remembered


def check_types(spark: SparkSession, runtimes: Sequence[OperatorRuntime]) -> None:
    """Have Spark analyse everything that operators compute, and the streams that they read; it runs nothing.

    Raises:
        DeclarationError: naming the stream or operator, the expression and what Spark has against it.
    """
    for runtime in runtimes:
        remembered(spark, ("types", runtime.operator), partial(_check, spark, runtime))


def _check(spark: SparkSession, runtime: OperatorRuntime) -> None:
    operator = runtime.operator
    logs = {stream.name: no_rows(spark, stream) for stream in operator.reads}
    try:
        runtime.analyse(logs)
    except AnalysisException as error:
        raise DeclarationError(
            f"{operator.kind_name} {operator.name!r} has an expression that Spark cannot compute: {refusal(error)}. "
            "Correct it, for example with a cast; nothing was read yet."
        ) from error
