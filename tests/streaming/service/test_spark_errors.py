"""What Spark's own errors are turned into: a paragraph that names the view and what to do."""

from __future__ import annotations

import pytest

from streaming.service.query_errors import explain_known

SPARK = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted due to stage failure: Task 1
in stage 3.0 failed 1 times, most recent failure: Lost task 1.0 in stage 3.0 (TID 4): {error} SQLSTATE: XXKST
\tat org.apache.spark.sql.execution.streaming.state.StateSchemaCompatibilityChecker.check(State.scala:77)
"""


def explained(error: str) -> str:
    text = explain_known(SPARK.format(error=error), "view 'by_hour'")
    assert text is not None
    assert "\n" not in text and "org.apache" not in text and "SQLSTATE" not in text
    return text


@pytest.mark.parametrize(
    ("error", "parts"),
    [
        ("[CHECKPOINT_FILE_CHECKSUM_VERIFICATION_FAILED] Checksum of offsets/7 does not", ("damaged", "backup")),
        (
            "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///lake/by_hour/part-0.parquet.",
            ("part-0.parquet", "gone or damaged", "tidemark doctor", "tidemark rebuild"),
        ),
        ("[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log.", ("another process", "tidemark status")),
        ("java.lang.OutOfMemoryError: Java heap space", ("Java heap space", "TIDEMARK_SPARK_DRIVER_MEMORY")),
        ("ModuleNotFoundError: No module named 'shop'", ("No module named 'shop'", "PYTHONPATH")),
        (
            "org.apache.spark.SparkArithmeticException: [DIVIDE_BY_ZERO] Division by zero. Use `try_divide` to tolerate"
            ' divisor being 0 and return NULL instead. If necessary set "spark.sql.ansi.enabled" to "false"',
            ("Division by zero", "cannot be computed for some row", "try_divide"),
        ),
    ],
)
def test_a_known_error_says_what_it_means_and_what_to_do(error: str, parts: tuple[str, ...]) -> None:
    text = explained(error)
    assert "view 'by_hour'" in text or "View 'by_hour'" in text
    for part in parts:
        assert part.lower() in text.lower()
    assert "ansi" not in text


def test_an_error_that_is_not_known_is_left_to_its_own_words() -> None:
    assert explain_known(SPARK.format(error="java.lang.IllegalStateException: who knows"), "view 'x'") is None
