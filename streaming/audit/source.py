"""What the landing folder says against the log: files changed after they were ingested, files not ingested yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from urllib.parse import unquote

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from streaming.declare import Stream
from streaming.lake import Lake
from streaming.log import read_log
from streaming.spark import FileInfo, visible_files


@dataclass(frozen=True)
class FileFinding:
    """One file of the landing folder that does not agree with the log.

    `changed`: its size or modification time is not the one it was ingested with; what was written into it since is
    not in the log. `waiting`: no row of the log comes from it. `ingested` is what the log says of a changed file,
    `found` what the folder says now.
    """

    kind: Literal["changed", "waiting"]
    found: FileInfo
    ingested: FileInfo | None = None

    def text(self) -> str:
        """What is the matter and what to do about it."""
        if self.ingested is None:
            return f"{self.found.path} ({self.found.size} bytes) is not in the log yet; run the pipeline."
        return (
            f"{self.found.path} was ingested with {self.ingested.size} bytes (modified {self.ingested.modified} ms) "
            f"and has {self.found.size} bytes (modified {self.found.modified} ms) now. A file is read once: deliver "
            "what was added or corrected as a new file under a new name."
        )


def changed_files(spark: SparkSession, lake: Lake, stream: Stream) -> list[FileFinding]:
    """The landing files that were changed after they were ingested or are not ingested yet, ordered by path.

    A file that is gone is no finding: it may be removed once it is in the log. Neither is an empty one.

    Raises:
        LogError: nothing has been ingested yet.
    """
    known = _ingested(spark, lake, stream)
    findings: list[FileFinding] = []
    for found in sorted(visible_files(spark, stream.source.location(lake)), key=lambda info: info.path):
        versions = known.get(_identity(found.path), [])
        if not versions and found.size:
            findings.append(FileFinding("waiting", found))
        elif versions and all((found.size, found.modified) != (info.size, info.modified) for info in versions):
            findings.append(FileFinding("changed", found, versions[-1]))
    return findings


def _ingested(spark: SparkSession, lake: Lake, stream: Stream) -> dict[str, list[FileInfo]]:
    """What the log says of each file; more than one entry only where a new log was begun over the same files."""
    rows = (
        read_log(spark, lake, stream)
        .where(F.col("_origin").isNotNull())
        .select(F.col("_origin.path"), F.col("_origin.size"), F.unix_millis("_origin.modified").alias("modified"))
        .distinct()
        .orderBy("path", "modified")
        .collect()
    )
    known: dict[str, list[FileInfo]] = {}
    for row in rows:
        # Spark's path column is URI-encoded, a listing is not.
        path = unquote(row["path"])
        known.setdefault(_identity(path), []).append(FileInfo(path, row["size"], row["modified"]))
    return known


def _identity(path: str) -> str:
    """Hadoop writes local paths as `file:/a`, Spark as `file:///a`."""
    return "file:/" + path.removeprefix("file:").lstrip("/") if path.startswith("file:") else path
