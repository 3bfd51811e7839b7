"""How PySpark reaches the JVM: fewer messages for the same frames; see FACTS.md, Costs."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from py4j.java_collections import JavaArray
from py4j.java_gateway import JavaClass, JavaMember, JavaObject
from pyspark.sql import SparkSession

_ASKED_FOR_AGAIN_AND_AGAIN = (
    "functions",
    "org.apache.spark.sql.functions",
    "org.apache.spark.sql.classic.SparkSession",
    "org.apache.spark.sql.classic.ExpressionUtils",
    "org.apache.spark.sql.catalyst.expressions.TryEval",
    "PythonUtils",
    "PythonSQLUtils",
    "PythonRDD",
    "SerDeUtil",
    "SimplePythonFunction",
)
_SAME_FOR_THE_SAME_TEXT = ("col", "expr")
"""Functions of Spark that make a column of a text. A column is a value, also where it stands for a random number."""
_COLUMNS = 2_000
"""How many columns are kept, so that their memory is bounded."""
_OF_ONE_CALL = 10
"""Java's `List.of` takes so many elements."""


class _RememberedClass(JavaClass):
    """A class of the JVM whose static methods are looked up once."""

    def __getattr__(self, name: str) -> Any:
        member = super().__getattr__(name)
        if isinstance(member, JavaMember):
            if name in _SAME_FOR_THE_SAME_TEXT:
                member = lru_cache(_COLUMNS)(member.__call__)
            self.__dict__[name] = member
        return member


class _Lists:
    """Hands texts and objects of the JVM over ten at a time; Py4J's own converter adds one element with each call."""

    def __init__(self, java: Any) -> None:
        self._list_of, self._array_list = java.java.util.List.of, java.java.util.ArrayList

    def can_convert(self, value: Any) -> bool:
        """As Py4J asks before each argument of a call."""
        # Java would take one array for many elements.
        return type(value) is list and bool(value) and all(map(self._is_one, value))

    @staticmethod
    def _is_one(value: Any) -> bool:
        return isinstance(value, str | JavaObject) and not isinstance(value, JavaArray)

    def convert(self, values: list[Any], client: Any) -> Any:
        """A Java list of the same elements."""
        parts = [self._list_of(*values[at : at + _OF_ONE_CALL]) for at in range(0, len(values), _OF_ONE_CALL)]
        if len(parts) == 1:
            return parts[0]
        whole = self._array_list()
        for part in parts:
            whole.addAll(part)
        return whole


def spare_calls(spark: SparkSession) -> None:
    """Spare the JVM what PySpark asks of it for every column of every expression."""
    java: Any = spark.sparkContext._jvm
    if isinstance(getattr(java, _ASKED_FOR_AGAIN_AND_AGAIN[0]), _RememberedClass):
        return
    for name in _ASKED_FOR_AGAIN_AND_AGAIN:
        java_class = getattr(java, name)
        setattr(java, name, _RememberedClass(java_class._fqn, java_class._gateway_client))
    client = java._gateway_client
    client.converters = [_Lists(java), *client.converters]
