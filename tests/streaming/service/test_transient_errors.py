from __future__ import annotations

import pytest
from deltalake.exceptions import CommitFailedError
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkException

from streaming.base.errors import FencedError, FunctionError, LeaseError, LogError, QueryFailed, SourceError, StoreError
from streaming.service.query_errors import pausing, transient_cause
from streaming.service.watch import Paused, StopRequested
from tests.support.pipelines.beats import by_id

SPARK = "An error occurred while calling o1.parquet.\n: java.io.IOException: {}\n\tat org.apache.hadoop.fs.Somewhere"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(28, "No space left on device"), "the disk is full: free some space, and the stream goes on by itself"),
        (RuntimeError(SPARK.format("No space left on device")), "(: java.io.IOException: No space left on device)"),
        (
            RuntimeError(SPARK.format("Mkdirs failed to create file:/lake/x (exists=false, cwd=file:/work)")),
            "give the permission back",
        ),
        (PermissionError(13, "Permission denied", "/lake/x"), "give the permission back"),
        (ConnectionRefusedError(111, "Connection refused"), "does not answer: bring it back"),
        (RuntimeError("SparkException: Python worker failed to connect back."), "did not start in time"),
        (OSError("AWS Error NETWORK_CONNECTION during PutObject operation: curlCode: 7"), "bring it back"),
        (StoreError("s3://lake cannot be reached (SlowDown)"), "s3://lake cannot be reached (SlowDown)"),
        (SourceError("the landing folder '/x' does not exist; create it."), "the landing folder '/x' does not exist"),
    ],
)
def test_a_cause_outside_of_the_batch_is_told_with_what_to_do(error: Exception, message: str) -> None:
    assert message in str(transient_cause(error))


@pytest.mark.parametrize(
    "error",
    [
        ValueError("division by zero"),
        LogError("the column has another type"),
        PySparkException("[CAST_INVALID_INPUT] The value 'Connection refused' is no INT. SQLSTATE: 22018"),
    ],
)
def test_what_the_batch_is_to_blame_for_is_none(error: Exception) -> None:
    assert transient_cause(error) is None


@pytest.mark.parametrize(
    "error",
    [
        OSError(5, "Input/output error"),
        MemoryError(),
        StoreError("s3://lake is away"),
        CommitFailedError("the commit failed"),
        FencedError("another process has taken over"),
        LeaseError("another machine has it"),
        Py4JNetworkError("the JVM is gone"),
        PySparkException("Job 3 cancelled because SparkContext was shut down"),
        PySparkException("java.lang.OutOfMemoryError: Java heap space"),
        StopRequested("by_id"),
    ],
)
def test_what_is_no_matter_of_one_operator_is_raised_as_it_is(error: Exception) -> None:
    with pytest.raises(type(error)), pausing(by_id):
        raise error


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (PySparkException("[DIVIDE_BY_ZERO] no. SQLSTATE: 1"), QueryFailed, "An expression of view 'by_id' cannot be"),
        (FunctionError("function f raised."), FunctionError, "function f raised. It was to follow batch 3."),
        (FunctionError("f raised ConnectionRefusedError: [Errno 111] Connection refused."), FunctionError, "f raised"),
        (
            PySparkException(
                "Traceback (most recent call last):\nstreaming.base.errors.FunctionError: No space left on device"
            ),
            QueryFailed,
            "No space left on device",
        ),
        *(
            (PySparkException(f"[CAST_INVALID_INPUT] The value '{text}' is no INT. SQLSTATE: 22018"), QueryFailed, text)
            for text in ("Connection refused", "No space left on device", "java.lang.OutOfMemoryError")
        ),
        (PySparkException("[USER_RAISED_EXCEPTION] Permission denied SQLSTATE: P0001"), QueryFailed, "Permission"),
        (ValueError("year 10000 is out of range"), QueryFailed, "failed: ValueError: year 10000 is out of range. Noth"),
        (
            PySparkException(
                "From the worker:\nTraceback (most recent call last):\n  File x\nKeyError: 'k'\n\n\tat org.x"
            ),
            QueryFailed,
            "a step of view 'by_id' failed: KeyError: 'k'. Nothing is lost",
        ),
    ],
)
def test_anything_else_pauses_the_operator_with_what_was_raised_and_where(
    error: Exception, kind: type[Exception], text: str
) -> None:
    with pytest.raises(Paused) as paused, pausing(by_id, "It was to follow batch 3."):
        raise error
    assert type(paused.value.reason) is kind
    assert text in str(paused.value.reason) and str(paused.value.reason).endswith("It was to follow batch 3.")
