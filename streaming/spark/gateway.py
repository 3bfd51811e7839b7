"""How PySpark reaches the JVM."""

from __future__ import annotations

from typing import Any

from py4j.java_gateway import JavaClass, JavaMember
from pyspark.sql import SparkSession

_ASKED_FOR_AGAIN_AND_AGAIN = (
    "functions",
    "org.apache.spark.sql.functions",
    "org.apache.spark.sql.classic.SparkSession",
    "PythonUtils",
    "PythonSQLUtils",
    "PythonRDD",
    "SerDeUtil",
    "SimplePythonFunction",
)


class _RememberedClass(JavaClass):
    """A class of the JVM whose static methods are looked up once."""

    def __getattr__(self, name: str) -> Any:
        member = super().__getattr__(name)
        if isinstance(member, JavaMember):
            self.__dict__[name] = member
        return member


def remember_classes(spark: SparkSession) -> None:
    """Look up once what PySpark looks up for every column of every expression; see FACTS.md, Costs."""
    java = spark.sparkContext._jvm
    for name in _ASKED_FOR_AGAIN_AND_AGAIN:
        found = getattr(java, name)
        if not isinstance(found, _RememberedClass):
            setattr(java, name, _RememberedClass(found._fqn, found._gateway_client))
