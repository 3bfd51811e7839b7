"""Values that follow from a declaration alone, made once in a session and not for each run of it."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from pyspark.sql import SparkSession

T = TypeVar("T")

_MOST = 1_000
"""The greatest number of values kept in a session, so that it is bounded in a process of many declarations."""
_ATTRIBUTE = "_tidemark_remembered"


def remembered(spark: SparkSession, key: Hashable, make: Callable[[], T]) -> T:
    """The value that `make` gives, made once for all that have the same `key` in a session.

    The key says what is made, and holds everything that it depends on; what is made is a value that nobody changes.
    The columns of a frame are such: to find them out, Spark analyzes it step by step.
    """
    # Kept by the session itself, as what is remembered may hold it.
    made: dict[Hashable, Any] = vars(spark).setdefault(_ATTRIBUTE, {})
    try:
        result: T = made[key]
    except TypeError:
        # A source of a user's own need not have a hash.
        return make()
    except KeyError:
        result = make()
        if len(made) >= _MOST:
            made.clear()
        made[key] = result
    return result
