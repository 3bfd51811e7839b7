"""Everything that knows Spark's own files and internal names: session, jars, Java, checkpoints."""

from typing import TYPE_CHECKING

from streaming.base.fronts import make_front

if TYPE_CHECKING:
    from streaming.spark import java
    from streaming.spark.analysis import Analysis
    from streaming.spark.arrow_expressions import arrow_expressions, is_equal_in_arrow
    from streaming.spark.arrow_frame import frame_of_arrow
    from streaming.spark.arrow_functions import Rows
    from streaming.spark.arrow_tree import ArrowExpression, Unproven, decimal_type
    from streaming.spark.checkpoint import (
        TakenFile,
        check_checkpoint,
        copy_checkpoint,
        forget_after,
        has_begun,
        make_checkpoint,
        newest_committed,
        newest_compaction,
        newest_planned,
        planned,
        planned_offsets,
        query_id,
        rename_taken,
        taken_entry,
        unreadable_files,
    )
    from streaming.spark.class_sharing import archive_path, archiving_option
    from streaming.spark.exact_json import as_json, exact_json
    from streaming.spark.files import (
        OF_ONE_TASK,
        FileInfo,
        announced,
        exists,
        file_at,
        is_visible,
        ordered,
        visible_files,
    )
    from streaming.spark.guard import (
        computed_or,
        failure_of,
        first_failure,
        guarded,
        holds,
        named_values,
        refusal,
        row_values,
    )
    from streaming.spark.jars import (
        BROKER,
        CORE,
        GROUPS,
        KAFKA,
        S3,
        JarGroup,
        add_jars,
        add_storage,
        are_there,
        jars_folder,
        jars_of,
        spark_jars,
        storage_jars,
    )
    from streaming.spark.session import lenient_session, mark_tasks, start_session
    from streaming.spark.user_lists import CLASS_PATH, users_lists
    from streaming.spark.worker_errors import cause_in_words, failed_expression, function_errors, raised_in_workers

make_front(__name__)
