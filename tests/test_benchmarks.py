"""What the benchmarks rest on."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from benchmarks.processes import code_of, cpu_seconds, family, until
from streaming.declare import broken_modules, declared_pipelines


def test_a_version_that_is_measured_runs_its_own_code_wherever_it_is_started(tmp_path: Path) -> None:
    for project in ("measured", "started_in"):
        (tmp_path / project).mkdir()
        (tmp_path / project / "version.py").write_text(f"print({project!r})")
    process = subprocess.run(
        [sys.executable, "-m", "version"],
        env={**os.environ, **code_of(tmp_path / "measured")},
        cwd=tmp_path / "started_in",
        capture_output=True,
        text=True,
        check=True,
    )
    assert process.stdout.strip() == "measured"


def test_no_pipeline_of_the_benchmarks_keeps_another_from_running(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_PIPELINES", "benchmarks.pipelines")
    assert broken_modules() == ()
    assert {"live", "live_view", "live_joins", "live_alerts", "daily"} <= set(declared_pipelines())


def _busy(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        enough = time.process_time() + 2
        while time.process_time() < enough:
            pass
    yield pa.record_batch({"pid": [os.getpid()]})


def test_what_a_python_worker_of_spark_has_burnt_counts_after_it_has_ended(spark: SparkSession) -> None:
    before = cpu_seconds()
    (row,) = spark.range(0, 1, 1, 1).mapInArrow(_busy, "pid long").collect()
    assert cpu_seconds() - before > 1
    measured = cpu_seconds()
    (worker,) = (each for each in family(os.getpid()) if each.pid == row.pid)
    worker.kill()
    assert until(lambda: worker not in family(os.getpid()), 10) is not None
    assert cpu_seconds() >= measured
