"""Everything that knows Spark's own files and internal names: session, jars, Java, checkpoints."""

from streaming.spark import java
from streaming.spark.checkpoint import (
    TakenFile,
    check_checkpoint,
    newest_compaction,
    planned,
    query_id,
    taken_entry,
)
from streaming.spark.class_sharing import archive_path
from streaming.spark.files import FileInfo, exists, is_visible, visible_files
from streaming.spark.jars import jars_folder, spark_jars
from streaming.spark.java import require_java
from streaming.spark.session import mark_tasks, start_session

__all__ = [
    "FileInfo",
    "TakenFile",
    "archive_path",
    "check_checkpoint",
    "exists",
    "is_visible",
    "jars_folder",
    "java",
    "mark_tasks",
    "newest_compaction",
    "planned",
    "query_id",
    "require_java",
    "spark_jars",
    "start_session",
    "taken_entry",
    "visible_files",
]
