"""Files through Hadoop's file systems, so that any URI Spark can read works."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession


@dataclass(frozen=True)
class FileInfo:
    """A visible file: its URI, size in bytes, and modification time in milliseconds since the epoch."""

    path: str
    size: int
    modified: int


def exists(spark: SparkSession, location: str) -> bool:
    """Whether there is a file or folder at `location`."""
    file_system, path = _resolve(spark, location)
    return bool(file_system.exists(path))


def visible_files(spark: SparkSession, location: str) -> Iterator[FileInfo]:
    """The files directly in `location` whose names do not begin with `.` or `_`."""
    file_system, path = _resolve(spark, location)
    if not file_system.exists(path):
        return
    for status in file_system.listStatus(path):
        if status.isFile() and not status.getPath().getName().startswith((".", "_")):
            yield FileInfo(status.getPath().toString(), status.getLen(), status.getModificationTime())


def _resolve(spark: SparkSession, location: str) -> tuple[Any, Any]:
    context: Any = spark.sparkContext
    path = context._jvm.org.apache.hadoop.fs.Path(location)
    return path.getFileSystem(context._jsc.hadoopConfiguration()), path
