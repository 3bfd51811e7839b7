"""Where raw payloads come from. A source yields binary payloads with their origin and nothing else."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import DeclarationError, SourceError
from streaming.lake import Lake
from streaming.spark import exists, planned

_DESCRIBED = 20


@dataclass(frozen=True)
class Files:
    """Text files that are moved into `path` whole, one payload per line, taken in order of modification time.

    A file's identity is its path: write under a hidden name (leading `.` or `_`) and rename. `path` is relative to
    the lake's root unless it is absolute or a URI.

    A batch takes at most `files_per_batch` files, or files of at most `bytes_per_batch` bytes in all, but one at least,
    as files are taken whole; without either it takes one file. However much has gathered, a batch is no larger.

    `partition`: a regular expression with one group over a file's path. The group's text names the source partition
    of the file's rows, "" where nothing matches; the clock goes by the slowest partition. Without it there is one
    partition, "".
    """

    path: str
    files_per_batch: int | None = None
    bytes_per_batch: int | None = None
    partition: str | None = None

    origin = "struct<path: string, modified: timestamp, size: bigint, position: bigint, repairs: bigint>"

    def __post_init__(self) -> None:
        for name in ("files_per_batch", "bytes_per_batch"):
            cap = getattr(self, name)
            if cap is not None and cap < 1:
                raise DeclarationError(f"{name}={cap!r} reads nothing; use 1 or more.")
        # Spark knows one of them at a time.
        if self.files_per_batch is not None and self.bytes_per_batch is not None:
            raise DeclarationError(
                f"files_per_batch={self.files_per_batch!r} and bytes_per_batch={self.bytes_per_batch!r} exclude one "
                "another; keep the one that bounds a batch more tightly."
            )
        if self.partition is not None:
            _check_pattern(self.partition)

    def location(self, lake: Lake) -> str:
        """The folder, as an absolute path or URI."""
        return lake.path(self.path)

    def read(self, spark: SparkSession, location: str) -> DataFrame:
        """A streaming frame of `_raw`, text that may be no UTF-8, and `_origin` (path, modification time, size).

        Raises:
            SourceError: the folder does not exist.
        """
        self.check_there(spark, location)
        lines = (
            spark.readStream.format("text")
            .option(*self._cap)
            # An old modification time must never be a reason to skip a file (fact F2).
            .option("maxFileAge", "36500d")
            .load(location)
        )
        return lines.select(
            F.col("value").alias("_raw"),
            F.struct(
                F.col("_metadata.file_path").alias("path"),
                F.col("_metadata.file_modification_time").alias("modified"),
                F.col("_metadata.file_size").alias("size"),
            ).alias("_origin"),
        )

    @property
    def _cap(self) -> tuple[str, int]:
        if self.bytes_per_batch is not None:
            return "maxBytesPerTrigger", self.bytes_per_batch
        return "maxFilesPerTrigger", self.files_per_batch or 1

    def check_there(self, spark: SparkSession, location: str) -> None:
        """Refuse a folder that is not there.

        Raises:
            SourceError: naming the folder.
        """
        if not exists(spark, location):
            raise SourceError(
                f"the landing folder {location!r} does not exist; create it, or correct Files({self.path!r}). "
                "Nothing was read."
            )

    def located(self, batch: DataFrame) -> DataFrame:
        """One batch of `read` with each row's position in it, which a streaming frame cannot number.

        `repairs` is null: only a repaired row has the batch of the rejected row that it repairs.
        """
        located = F.col("_origin").withField("position", F.monotonically_increasing_id())
        return batch.withColumn("_origin", located.withField("repairs", F.lit(None).cast("bigint")))

    def partition_of(self, origin: Column) -> Column:
        """The source partition of each row, by its `_origin`; never null."""
        if self.partition is None:
            return F.lit("")
        # Spark tells paths URL-encoded, and its decoder would take a plus for a space.
        path = F.try_url_decode(F.replace(origin["path"], F.lit("+"), F.lit("%2B")))
        return F.coalesce(F.regexp_extract(path, self.partition, 1), F.lit(""))

    def time_of(self, origin: Column) -> Column:
        """When the source had each row, by its `_origin`: the file's modification time."""
        return origin["modified"]

    def describe_batch(self, checkpoint: str, query_batch: int) -> str:
        """The files of a batch, for a person to read: the first ones, where there are many. Needs no session."""
        paths = planned(checkpoint, query_batch)
        more = f" and {len(paths) - _DESCRIBED:,} more" if len(paths) > _DESCRIBED else ""
        return ", ".join(paths[:_DESCRIBED]) + more

    def check(self, spark: SparkSession, checkpoint: str, query_batch: int) -> None:
        """Refuse a batch when a file of it is gone: Spark plans a batch anew and leaves such a file out in silence.

        Raises:
            SourceError: naming the file.
        """
        for path in planned(checkpoint, query_batch):
            if not exists(spark, path):
                raise vanished(path)


def _check_pattern(pattern: str) -> None:
    advice = "write one with exactly one group, such as r'/(p[0-9]+)-[^/]*$'"
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        raise DeclarationError(f"partition={pattern!r} is not a regular expression ({error}); {advice}.") from error
    if groups != 1 or "(?P" in pattern:
        named = ", named as Java does not know it" if "(?P" in pattern else ""
        raise DeclarationError(f"partition={pattern!r} has {groups} groups{named}; {advice}.")


def vanished(path: str) -> SourceError:
    """The error for a file that is gone before its batch was committed."""
    return SourceError(
        f"a file vanished before its batch was committed: {path}. Put it back and run again; files of the landing "
        "folder may be removed only after their batch is in the log."
    )
