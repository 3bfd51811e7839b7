from __future__ import annotations

import pytest

from streaming.base.errors import LogError, SourceError, StoreError
from streaming.service.transient_errors import transient_cause

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


@pytest.mark.parametrize("error", [ValueError("division by zero"), LogError("the column has another type")])
def test_what_the_batch_is_to_blame_for_is_none(error: Exception) -> None:
    assert transient_cause(error) is None
