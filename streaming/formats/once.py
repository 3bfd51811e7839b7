"""A column that is computed once and named many times."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F


def once(value: Column, body: Callable[[Column], Column]) -> Column:
    """`body` of the value, which is computed once.

    Spark interprets a lambda: what few rows need is not compiled anew for every batch.
    """
    return F.transform(F.array(value), body)[0]
