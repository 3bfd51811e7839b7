"""Files through Hadoop's file systems, for any URI that Spark can read; a folder's in order of time and name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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


def file_at(spark: SparkSession, location: str) -> FileInfo | None:
    """The file at `location`, by that path; None where there is none."""
    file_system, path = _resolve(spark, location)
    if not file_system.exists(path):
        return None
    status = file_system.getFileStatus(path)
    return FileInfo(location, int(status.getLen()), int(status.getModificationTime()))


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
