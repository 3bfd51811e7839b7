"""A declaration over columns as Spark's analyzer sees it, found out once in a session and not in each run."""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping
from functools import cached_property
from typing import Any, Generic, Self, TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

_MOST = 1_000
"""The greatest number of analyses that a session has, so that it is bounded in a process of many declarations."""
_ATTRIBUTE = "_tidemark_analyses"

Of = TypeVar("Of")


class Analysis(Generic[Of]):
    """A declaration over inputs of certain columns, as Spark sees it: schemas, expressions and frames without a row.

    To find these out Spark analyzes a frame step by step, a third of its work in a run over a few rows. A kind adds
    each as a `cached_property`, which follows from the declaration and the columns alone; nobody changes it.
    """

    def __init__(self, spark: SparkSession, of: Of, columns: Mapping[str, str]) -> None:
        self.spark = spark
        self.of = of
        self.columns = columns

    @classmethod
    def once(cls, spark: SparkSession, of: Of, columns: Mapping[str, str] | None = None) -> Self:
        """The one of this session for equal declarations over inputs of equal `columns`, by name as a schema's JSON."""
        columns = columns or {}
        key: Hashable = (cls, of, tuple(columns.items()))
        # Kept by the session itself, as it holds frames of it.
        made: dict[Hashable, Any] = vars(spark).setdefault(_ATTRIBUTE, {})
        try:
            analysis: Self | None = made.get(key)
        except TypeError:
            # A source of a user's own need not have a hash.
            return cls(spark, of, columns)
        if analysis is None:
            if len(made) >= _MOST:
                made.clear()
            analysis = made[key] = cls(spark, of, columns)
        return analysis

    @cached_property
    def inputs(self) -> Mapping[str, DataFrame]:
        """Each input without a row, by name."""
        schemas = {name: StructType.fromJson(json.loads(text)) for name, text in self.columns.items()}
        return {name: self.spark.createDataFrame([], schema) for name, schema in schemas.items()}
