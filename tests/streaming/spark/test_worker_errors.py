"""What Spark says of an error, in one line."""

from __future__ import annotations

import pytest

from streaming.spark.worker_errors import cause_in_words, failed_expression

DIVISION = """[DIVIDE_BY_ZERO] Division by zero. Use `try_divide`. If necessary set "a" to "false". SQLSTATE: 22012
== SQL (line 1, position 5) ==
sum(60 div b)
    ^^^^^^^^
"""
WORKER = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/shop/functions.py", line 19, in bad
    def bad(x): raise ValueError("boo")
ValueError: boo

JVM stacktrace:
\tat org.apache.spark.api.python.BasePythonRunner
"""
FUNCTION = WORKER.replace(
    "ValueError: boo", "streaming.base.errors.FunctionError: function bad of view 'v' failed: boo"
)
CALL = "An error occurred while calling o12.parquet.\n: org.apache.spark.SparkException: Job aborted.\n\tat org.a.B"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (DIVISION, "[DIVIDE_BY_ZERO] Division by zero. Use `try_divide`, in `60 div b`"),
        (WORKER, "ValueError: boo"),
        (FUNCTION, "function bad of view 'v' failed: boo"),
        (CALL, "org.apache.spark.SparkException: Job aborted"),
        ("[ARITHMETIC_OVERFLOW] overflow. SQLSTATE: 22003", "[ARITHMETIC_OVERFLOW] overflow"),
        ("Job aborted: java.lang.X: [CAST_INVALID_INPUT] The value. SQLSTATE: 1", "[CAST_INVALID_INPUT] The value"),
    ],
)
def test_a_cause_is_one_line_with_the_expression_or_what_a_function_raised(text: str, words: str) -> None:
    assert cause_in_words(RuntimeError(text)) == words


def test_an_error_without_an_expression_names_none() -> None:
    assert failed_expression("[ARITHMETIC_OVERFLOW] overflow. SQLSTATE: 22003") is None
