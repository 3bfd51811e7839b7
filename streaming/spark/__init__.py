"""Everything that knows Spark's own files and internal names: session, jars, Java, checkpoints."""

from streaming.spark import java
from streaming.spark.checkpoint import (
    TakenFile,
    batch_numbers,
    check_checkpoint,
    newest_compaction,
    offset_of,
    planned,
    query_id,
    stamps_before,
    taken_entry,
    version_reached,
)
from streaming.spark.class_sharing import archive_path
from streaming.spark.files import FileInfo, exists, is_visible, visible_files
from streaming.spark.java import require_java
from streaming.spark.query import native_drops
from streaming.spark.session import start_session

__all__ = [
    "FileInfo",
    "TakenFile",
    "archive_path",
    "batch_numbers",
    "check_checkpoint",
    "exists",
    "is_visible",
    "java",
    "native_drops",
    "newest_compaction",
    "offset_of",
    "planned",
    "query_id",
    "require_java",
    "stamps_before",
    "start_session",
    "taken_entry",
    "version_reached",
    "visible_files",
]
