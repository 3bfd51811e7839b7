"""What becomes of tests whose service does not start: skipped aloud, or failed where services are required."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]
# One test needs Kafka, which is a JVM, and the other one nothing.
KAFKA = "tests/streaming/sinks/test_kafka_topic.py::test_a_declared_topic_that_is_not_there_is_waited_for"
NONE = "tests/journeys/test_ids.py"


@pytest.mark.sampled
@pytest.mark.processes
@pytest.mark.parametrize(
    ("workers", "required", "outcome"), [(["--numprocesses", "1"], "", "1 skipped"), ([], "1", "1 error")]
)
def test_a_service_that_does_not_start_is_told_in_the_summary_or_fails_its_tests(
    tmp_path: Path, workers: list[str], required: str, outcome: str
) -> None:
    environment = os.environ | {"JAVA_HOME": str(tmp_path), "TIDEMARK_REQUIRE_SERVICES": required}
    environment |= {"TIDEMARK_LAW_SEED": "42", "PYTHONPATH": str(PROJECT)}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *workers, KAFKA, NONE],
        cwd=PROJECT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    said = done.stdout
    assert (done.returncode, "5 passed" in said, outcome in said) == (int(required or 0), True, True), said
    assert "seed of the laws: 42 (TIDEMARK_LAW_SEED=42 draws them again)" in said
    if required:
        assert "Kafka does not start here, and TIDEMARK_REQUIRE_SERVICES=1 requires it: " in said
        assert "Laws were drawn from the seed 42: TIDEMARK_LAW_SEED=42 draws them again." in said
    else:
        assert "MISSING SERVICES: tests did not run" in said
        assert "\nKafka: 1 test skipped\n" in said
    assert "5 passed" in said.splitlines()[-1], "pytest's own summary is the last line"


@pytest.mark.long
def test_a_seed_that_is_none_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import tests.support.seeds"],
        cwd=PROJECT,
        env=os.environ | {"TIDEMARK_LAW_SEED": "soon", "PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "TIDEMARK_LAW_SEED='soon' is no seed; give a whole number, such as TIDEMARK_LAW_SEED=42" in done.stderr
