"""A Spark session that a process borrows from the test that starts it, as one of its own takes ten seconds of CPU.

The JVM lives on when its borrower dies. Hence only for what writes in Python and has the JVM read, and never for a
stream: the JVM calls back one process, which is that of the test.
"""

from __future__ import annotations

from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession


def lending(spark: SparkSession) -> dict[str, str]:
    """The variables with which a process finds the JVM of a session."""
    gateway: Any = spark.sparkContext._gateway
    parameters = gateway.gateway_parameters
    return {"PYSPARK_GATEWAY_PORT": str(parameters.port), "PYSPARK_GATEWAY_SECRET": parameters.auth_token}


def borrowed_session() -> SparkSession:
    """The session that was lent to this process."""
    gateway: Any = launch_gateway()
    session = gateway.jvm.SparkSession.getDefaultSession().get()
    java = gateway.jvm.JavaSparkContext.fromSparkContext(session.sparkContext())
    return SparkSession(SparkContext(conf=SparkConf(_jconf=java.getConf()), gateway=gateway, jsc=java), session)
