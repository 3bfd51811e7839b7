"""The sketches of Spark: aggregates of bounded memory, such as `approx_top_k`."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

_RESOURCE = "org.apache.datasketches.memory.internal.ResourceImpl"


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
    finally:
        system.setErr(stderr)


def _say_that_it_was_printed(java: Any) -> None:
    printed = java.java.lang.Class.forName(_RESOURCE).getDeclaredField("JAVA_VERSION_WARNING_PRINTED")
    printed.setAccessible(True)
    printed.get(None).set(True)
