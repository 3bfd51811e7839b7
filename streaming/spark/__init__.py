"""Everything that knows Spark's own files and internal names: session, jars, Java, checkpoints."""

from streaming.spark import java
from streaming.spark.checkpoint import (
    _numbers,
    _offset,
    _reached,
    check_checkpoint,
    planned,
    query_id,
    stamps_before,
    taken,
)
from streaming.spark.class_sharing import (
    archive_path,
)
from streaming.spark.files import (
    FileInfo,
    exists,
    visible_files,
)
from streaming.spark.java import (
    require_java,
)
from streaming.spark.query import (
    native_drops,
)
from streaming.spark.session import (
    start_session,
)

__all__ = [
    "FileInfo",
    "_numbers",
    "_offset",
    "_reached",
    "archive_path",
    "check_checkpoint",
    "exists",
    "java",
    "native_drops",
    "planned",
    "query_id",
    "require_java",
    "stamps_before",
    "start_session",
    "taken",
    "visible_files",
]
