"""A folder's files in order of modification time and name, for Spark's file source, which leaves ties to chance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

_SOURCE = Path(__file__).with_name("OrderedFiles.java")
_CLASS = "tidemark.OrderedFiles"
_PREFIX = "ordered+"


def ordered(spark: SparkSession, location: str) -> str:
    """The URI under which Spark lists the files below `location` in order; they keep their own paths.

    Spark's file source sorts by modification time only, and takes files of one time as the file system lists them,
    which for a local disk is by chance (see FACTS.md, Files).
    """
    context: Any = spark.sparkContext
    hadoop = context._jsc.hadoopConfiguration()
    path = context._jvm.org.apache.hadoop.fs.Path(location)
    uri = path.getFileSystem(hadoop).makeQualified(path).toString()
    scheme = f"{_PREFIX}{uri.partition(':')[0]}"
    if hadoop.get(f"fs.{scheme}.impl") is None:
        hadoop.set(f"fs.{scheme}.impl", _CLASS)
    if hadoop.getClassByNameOrNull(_CLASS) is None:
        hadoop.setClassLoader(_compiled(context._jvm, hadoop.getClassLoader()))
    return f"{_PREFIX}{uri}"


def _compiled(jvm: Any, parent: Any) -> Any:
    """A class loader that has the class, made with the compiler that Spark itself makes classes with."""
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(parent)
    compiler.cook(_SOURCE.read_text())
    return compiler.getClassLoader()
