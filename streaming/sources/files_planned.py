"""The files that Spark has chosen for a batch, looked at before anything of it is taken."""

from __future__ import annotations

from pyspark.sql import SparkSession

from streaming.base import SourceError
from streaming.sources.file_bounds import FileBounds
from streaming.sources.taken_files import relative_path
from streaming.spark import planned, size_of
from streaming.tables import storage

_PUT_ASIDE = (
    "Nothing of its batch was taken. Move it out of the landing folder, leave an empty file under its name there, and "
    "run again; what is good in it can be landed under another name."
)


def sizes_of_planned(
    spark: SparkSession, checkpoint: str, query_batch: int, landing: str, bounds: FileBounds
) -> list[int]:
    """The sizes of the files of a batch, in bytes.

    Raises:
        SourceError: one is gone, cannot be read, or exceeds the `bounds`.
    """
    sizes = []
    for path in planned(checkpoint, query_batch):
        size = size_of(spark, path)
        if size is None:
            raise vanished(path)
        if size and path.startswith("file:") and ":" in path.rpartition("/")[2]:
            raise SourceError(f"{path} cannot be read: Hadoop knows no local file with a colon. {_PUT_ASIDE}")
        if size and bounds.may_exceed(path, size):
            _check_bounds(bounds, landing, path)
        sizes.append(size)
    return sizes


def vanished(path: str) -> SourceError:
    """The error for a file that is gone before its batch was committed."""
    return SourceError(
        f"a file vanished before its batch was committed: {path}. Put it back and run again; files of the landing "
        "folder may be removed only after their batch is in the log."
    )


def unreadable(path: str, reason: str) -> SourceError:
    """The error for a file that Spark could not read to its end."""
    return SourceError(f"{path} cannot be read ({reason}). {_PUT_ASIDE}")


def _check_bounds(bounds: FileBounds, landing: str, path: str) -> None:
    try:
        exceeded = bounds.exceeded(storage.below(landing), relative_path(path, landing))
    except FileNotFoundError as error:
        raise vanished(path) from error
    except OSError as error:
        raise SourceError(f"{path} cannot be unpacked ({error}). {_PUT_ASIDE}") from error
    if exceeded is not None:
        raise SourceError(
            f"{path} {exceeded}. {_PUT_ASIDE} If the file is right, raise that bound in Files(...), as far as the "
            "memory of driver and workers allows."
        )
