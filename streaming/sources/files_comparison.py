"""What a landing folder says against the log: files changed after they were ingested, files not ingested yet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.sources.files_backlog import undecoded_warning
from streaming.sources.landed_files import matcher, undecoded_names
from streaming.sources.source import SourceChange, SourceComparison
from streaming.spark import FileInfo, visible_files


def compare_files(
    spark: SparkSession, landing: str, origins: DataFrame, names: Sequence[str], is_copy: Callable[[str], bool]
) -> SourceComparison:
    """How the files of `landing` differ from what `origins` (column `_origin`) say of them, ordered by path.

    A file that is gone is no change: it may be removed once it is in the log. Neither is an empty one, one whose name
    is none of `names`, or one whose path the log does not have, but the bytes of which it has (`is_copy`).
    """
    ingested, is_meant = _ingested(origins), matcher(names)
    changes = [SourceChange("waiting", name, undecoded_warning([name])) for name in undecoded_names(landing)]
    files = (file for file in visible_files(spark, landing) if is_meant(file.path))
    for file in sorted(files, key=lambda info: info.path):
        versions = ingested.get(_identity(file.path), [])
        if not versions and file.size and not is_copy(file.path):
            text = f"{file.path} ({file.size} bytes) is not in the log yet; run the pipeline."
            changes.append(SourceChange("waiting", file.path, text))
        elif versions and all((file.size, file.modified) != (info.size, info.modified) for info in versions):
            changes.append(SourceChange("changed", file.path, _changed_text(file, versions[-1])))
    return SourceComparison(len(ingested), "files", tuple(changes))


def _changed_text(file: FileInfo, ingested: FileInfo) -> str:
    return (
        f"{file.path} was ingested with {ingested.size} bytes (modified {ingested.modified} ms) and has {file.size} "
        f"bytes (modified {file.modified} ms) now. A file is read once: deliver what was added or corrected as a new "
        "file under a new name."
    )


def _ingested(origins: DataFrame) -> dict[str, list[FileInfo]]:
    """What the log says of each file; more than one entry only where a new log was begun over the same files."""
    rows = (
        origins.where(F.col("_origin").isNotNull())
        .select(F.col("_origin.path"), F.col("_origin.size"), F.unix_millis("_origin.modified").alias("modified"))
        .distinct()
        .orderBy("path", "modified")
        .collect()
    )
    files: dict[str, list[FileInfo]] = {}
    for row in rows:
        # Spark's path column is URI-encoded, a listing is not.
        path = unquote(row["path"])
        files.setdefault(_identity(path), []).append(FileInfo(path, row["size"], row["modified"]))
    return files


def _identity(path: str) -> str:
    """Hadoop writes local paths as `file:/a`, Spark as `file:///a`."""
    return "file:/" + path.removeprefix("file:").lstrip("/") if path.startswith("file:") else path
