"""Files that are known by their bytes: one that was taken before under another path is not taken again."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING
from urllib.parse import unquote

from streaming.base import F
from streaming.sources.landed_files import first_names, relative_path, vanished
from streaming.sources.source import Memory, Reading, Taken
from streaming.tables import storage

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

CONTENT = "content"
"""Field of `_origin`: a digest of the file's bytes, in hexadecimal digits."""
_REACHED = "contents"
_LOCAL, _AS_PLANNED = "^file:/+", "file:///"
"""Rows have `file:/a` for a file that the checkpoint of their query calls `file:///a`."""
_DIGEST = 16
_AT_ONCE = 2**20

_log = logging.getLogger(__name__)


class TakenContents:
    """The path under which each content was taken first, of the files of which a log holds a row.

    The log is read once. `add` gives what the log remembers with the batch that brought the files; where the newest
    batch remembers something else, it is not the one that was added last, and the log is read again.
    """

    def __init__(self) -> None:
        self._paths: dict[str, str] = {}
        self._is_read = False
        self._reached: str | None = None

    def paths(self, reading: Reading) -> Mapping[str, str]:
        """The first path of each content."""
        reached = reading.memory.get(_REACHED)
        if not self._is_read or reached != self._reached:
            origins = reading.origins()
            self._paths = {} if origins is None else logged_contents(origins)
            self._reached, self._is_read = reached, True
        return self._paths

    def add(self, paths: Mapping[str, str]) -> Memory:
        """Take note of the files of a batch, by their contents."""
        if paths:
            self._paths |= paths
            text = "".join((self._reached or "", *sorted(paths)))
            self._reached = blake2b(text.encode(), digest_size=_DIGEST).hexdigest()
        return {} if self._reached is None else {_REACHED: self._reached}


_CONTENTS: dict[str, TakenContents] = {}
"""By the checkpoint of the query that reads the files; a log is read again where another one has that place by now."""


def without_copies(
    spark: SparkSession,
    reading: Reading,
    landing: str,
    planned: Sequence[str],
    rows: Callable[[], DataFrame],
    own_path: Column,
) -> Taken:
    """The `rows` of the `planned` files, but for those whose bytes were taken before, with CONTENT in `_origin`.

    `own_path` is that of a row's file, not encoded.

    Raises:
        SourceError: a file is gone.
    """
    contents = _CONTENTS.setdefault(reading.checkpoint, TakenContents())
    taken = contents.paths(reading)
    digests = {path: content_of(landing, path) for path in planned}
    first: dict[str, str] = {}
    for path, digest in digests.items():
        first.setdefault(digest, taken.get(digest, path))
    copies = {path: first[digest] for path, digest in digests.items() if first[digest] != path}
    if copies:
        _log.warning("%s: %s", landing, _copies_warning(copies))
    files = spark.createDataFrame(
        [(path, digest, path in copies) for path, digest in digests.items()],
        "_path string, _content string, _is_copy boolean",
    )
    as_planned = F.regexp_replace(own_path, _LOCAL, _AS_PLANNED)

    def new_rows() -> DataFrame:
        all_rows = rows()
        # To the left: a row whose file were not found would be lost.
        known = all_rows.join(F.broadcast(files), as_planned == F.col("_path"), "left").where("_is_copy is not true")
        with_content = known.withColumn("_origin", F.col("_origin").withField(CONTENT, F.col("_content")))
        return with_content.select(*all_rows.columns)

    new = {digest: path for digest, path in first.items() if path in digests}
    return Taken(new_rows, lambda written, counts: contents.add(new))


def logged_contents(origins: DataFrame) -> dict[str, str]:
    """The least path of each content among the column `_origin` of a log; none in one of before there was such."""
    if CONTENT not in origins.select("_origin.*").columns:
        return {}
    told = origins.select(F.col("_origin")[CONTENT].alias("content"), F.col("_origin.path").alias("path"))
    first = told.where("content is not null").groupBy("content").agg(F.min("path").alias("path")).toArrow()
    paths = (re.sub(_LOCAL, _AS_PLANNED, unquote(path)) for path in first["path"].to_pylist())
    return dict(zip(first["content"].to_pylist(), paths, strict=True))


def content_of(landing: str, path: str) -> str:
    """The digest of a file's bytes.

    Raises:
        SourceError: the file is gone.
    """
    digest = blake2b(digest_size=_DIGEST)
    try:
        with storage.below(landing).open_input_stream(relative_path(path, landing), compression=None) as stream:
            while block := stream.read(_AT_ONCE):
                digest.update(block)
    except FileNotFoundError as error:
        raise vanished(path) from error
    return digest.hexdigest()


def _copies_warning(copies: Mapping[str, str]) -> str:
    named = first_names([f"{path} (as {first})" for path, first in copies.items()])
    return f"Not read again, as the same bytes were read before: {named}."
