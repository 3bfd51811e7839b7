"""Files through Hadoop's file systems, for any URI that Spark can read; a folder's in order of time and name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote

from streaming.spark.jars import added_classes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


OF_ONE_TASK = 2 * 2**20
"""Bytes of a batch that one task takes: another one would cost more than it saves, and write a file more to be read."""
_SOURCE = Path(__file__).with_name("OrderedFiles.java")
_CLASS = "tidemark.OrderedFiles"
_PREFIX = "ordered"


def ordered(spark: SparkSession, location: str) -> str:
    """The URI under which Spark lists the files below `location` in order; they keep their own paths.

    Spark's file source sorts by modification time only, and takes files of one time as the file system lists them,
    which for a local disk is by chance (see FACTS.md, Files).
    """
    return _registered(spark, location, f"{_PREFIX}+")


def announced(spark: SparkSession, location: str, name: str, files: Callable[[], Iterable[FileInfo]]) -> str:
    """The URI under which Spark lists `files` instead of what is below `location`, in order; they keep their own paths.

    `files` is called each time that Spark lists; the path of each is its place in the file system, not encoded.
    `name`, of letters and digits, tells such URIs apart; one of a name that is there already takes its place.
    """
    from pyspark.java_gateway import ensure_callback_server_started

    context: Any = spark.sparkContext
    uri = _registered(spark, location, f"{_PREFIX}-{name}+")
    ensure_callback_server_started(context._gateway)
    listers = context._jsc.hadoopConfiguration().getClassByNameOrNull(_CLASS).getField("LISTERS").get(None)
    listers.put(name, _Lister(files))
    return uri


class _Lister:
    """The lines that `OrderedFiles.java` asks for."""

    def __init__(self, files: Callable[[], Iterable[FileInfo]]) -> None:
        self._files = files

    def get(self) -> str:
        """Called by Spark's source of files, in the thread of its query."""
        return "\n".join(f"{file.modified} {file.size} {quote(file.path)}" for file in self._files())

    class Java:
        """The interface by which Java knows it."""

        implements: ClassVar = ["java.util.function.Supplier"]


def _registered(spark: SparkSession, location: str, prefix: str) -> str:
    """The URI of `location` behind the prefix, whose files Hadoop takes from the class from now on."""
    context: Any = spark.sparkContext
    hadoop = context._jsc.hadoopConfiguration()
    path = context._jvm.org.apache.hadoop.fs.Path(location)
    uri = path.getFileSystem(hadoop).makeQualified(path).toString()
    scheme = f"{prefix}{uri.partition(':')[0]}"
    if hadoop.get(f"fs.{scheme}.impl") is None:
        hadoop.set(f"fs.{scheme}.impl", _CLASS)
    if hadoop.getClassByNameOrNull(_CLASS) is None:
        hadoop.setClassLoader(_compiled(context._jvm, added_classes(spark)))
    return f"{prefix}{uri}"


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
