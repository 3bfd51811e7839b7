"""The sketches of Spark: aggregates of bounded memory, such as `approx_top_k`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.find_spark_home import _find_spark_home
from pyspark.sql import SparkSession

_RESOURCE = "org.apache.datasketches.memory.internal.ResourceImpl"


def sketches_jar() -> Path:
    """The jar of Spark with its own copy of a class of the library, which refuses Java 25 where the library's is found.

    Java takes it from the first jar on the class path, and orders those of one folder by chance.
    """
    return next(Path(_find_spark_home(), "jars").glob("spark-catalyst_*.jar"))


def silence_sketches(spark: SparkSession) -> None:
    """Keep the library of sketches from printing a warning at its first use; it concerns memory that Spark never asks
    it for.
    """
    java: Any = spark.sparkContext._jvm
    system = java.java.lang.System
    stderr = system.err
    # The very first look at the class prints it, too.
    system.setErr(java.java.io.PrintStream(java.java.io.OutputStream.nullOutputStream()))
    try:
        _say_that_it_was_printed(java)
    except Py4JError:
        # On the driver of a cluster the library's own class may come first, which has no such field.
        pass
    finally:
        system.setErr(stderr)


def _say_that_it_was_printed(java: Any) -> None:
    printed = java.java.lang.Class.forName(_RESOURCE).getDeclaredField("JAVA_VERSION_WARNING_PRINTED")
    printed.setAccessible(True)
    printed.get(None).set(True)
