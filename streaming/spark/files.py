"""Files through Hadoop's file systems, so that any URI Spark can read works."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from streaming.spark.ordered_files import ordered


@dataclass(frozen=True)
class FileInfo:
    """A visible file: its URI, size in bytes, and modification time in milliseconds since the epoch."""

    path: str
    size: int
    modified: int


def exists(spark: SparkSession, location: str) -> bool:
    """True if there is a file or folder at `location`."""
    file_system, path = _resolve(spark, location)
    return bool(file_system.exists(path))


def size_of(spark: SparkSession, location: str) -> int | None:
    """The bytes of the file at `location`; None where there is none."""
    file_system, path = _resolve(spark, location)
    return int(file_system.getFileStatus(path).getLen()) if file_system.exists(path) else None


def is_visible(name: str) -> bool:
    """True if Spark's file source sees a file or folder of this name (see FACTS.md, Files)."""
    hidden = name.startswith(".") or name.endswith("._COPYING_") or (name.startswith("_") and "=" not in name)
    return not hidden


def visible_files(spark: SparkSession, location: str) -> Iterator[FileInfo]:
    """The visible files in `location` and in its visible sub-folders, as Spark's file source lists them (`ordered`).

    There are none where there is no such folder.
    """
    file_system, path = _resolve(spark, ordered(spark, location))
    if file_system.exists(path):
        for status in file_system.listStatus(path):
            yield FileInfo(status.getPath().toString(), status.getLen(), status.getModificationTime())


def _resolve(spark: SparkSession, location: str) -> tuple[Any, Any]:
    context: Any = spark.sparkContext
    path = context._jvm.org.apache.hadoop.fs.Path(location)
    return path.getFileSystem(context._jsc.hadoopConfiguration()), path
