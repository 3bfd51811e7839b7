"""Where raw payloads come from. A source yields binary payloads with their origin and nothing else."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.errors import DeclarationError, SourceError
from streaming.files import exists


@dataclass(frozen=True)
class Files:
    """Text files that are moved into `path` whole, one payload per line, taken in order of modification time.

    A file's identity is its path: write under a hidden name (leading `.` or `_`) and rename. `path` is relative to
    the lake's root unless it is absolute or a URI. `files_per_batch` bounds a batch.
    """

    path: str
    files_per_batch: int = 1

    origin = "struct<path: string, modified: timestamp, size: bigint, position: bigint>"

    def __post_init__(self) -> None:
        if self.files_per_batch < 1:
            raise DeclarationError(f"files_per_batch={self.files_per_batch!r} reads nothing; use 1 or more.")

    def read(self, spark: SparkSession, location: str) -> DataFrame:
        """A streaming frame of `_raw` binary and `_origin` (path, modification time, size).

        Raises:
            SourceError: the folder does not exist.
        """
        if not exists(spark, location):
            raise SourceError(
                f"the landing folder {location!r} does not exist; create it, or correct Files({self.path!r}). "
                "Nothing was read."
            )
        lines = (
            spark.readStream.format("text")
            .option("maxFilesPerTrigger", self.files_per_batch)
            # An old modification time must never be a reason to skip a file (fact F2).
            .option("maxFileAge", "36500d")
            .load(location)
        )
        return lines.select(
            F.col("value").cast("binary").alias("_raw"),
            F.struct(
                F.col("_metadata.file_path").alias("path"),
                F.col("_metadata.file_modification_time").alias("modified"),
                F.col("_metadata.file_size").alias("size"),
            ).alias("_origin"),
        )

    def located(self, batch: DataFrame) -> DataFrame:
        """One batch of `read` with each row's position in it, which a streaming frame cannot number."""
        return batch.withColumn("_origin", F.col("_origin").withField("position", F.monotonically_increasing_id()))
