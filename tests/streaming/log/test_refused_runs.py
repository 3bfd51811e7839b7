"""Circumstances under which a pipeline cannot run: a clear error, nothing is lost, and it runs once they are over."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from docs.examples.late_counts import count_by_sensor, pipeline
from docs.examples.late_counts import readings as stream
from streaming import Files, Pipeline, drain, log
from streaming.audit.laws import audit
from streaming.base.errors import CheckpointError, LeaseError, QueryFailed, SettingsError
from streaming.lake.lake import Lake
from streaming.operations.doctor import examine
from tests.support.feeds import land, readings
from tests.support.instants import NOW, T0, at
from tests.support.runs import read_current, run, tuples

PROJECT = Path(__file__).resolve().parents[3]


@pytest.mark.long
@pytest.mark.processes
def test_a_second_process_on_the_same_checkpoint_is_refused_until_the_first_one_is_dead(
    spark: SparkSession, lake: Lake
) -> None:
    land(stream.source.location(lake), readings("a@1"))
    holder = (
        "import sys; from streaming.lake import Lake; from streaming.service import take_lease; "
        "from docs.examples.late_counts import readings\n"
        "with take_lease(Lake(sys.argv[1]), readings): print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", holder, lake.root],
        cwd=PROJECT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(LeaseError, match=rf"'readings' is already held by process {other.pid}\b.*wait until"):
            run(spark, lake, pipeline)
        assert not Path(lake.log(stream)).exists()
        other.send_signal(signal.SIGKILL)

    assert run(spark, lake, pipeline).queries["log"].rows == 1


@pytest.mark.long
def test_a_checkpoint_deleted_while_the_log_has_rows_is_refused_and_a_view_comes_back_from_the_log(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    run(spark, lake, pipeline, readings("a@1, a@20"))
    logged = tuples(log.read_log(spark, lake, stream))
    first = tuples(read_current(spark, lake, count_by_sensor))

    checkpoint = lake.checkpoint(stream, "log")
    shutil.move(checkpoint, tmp_path / "backup")
    with pytest.raises(CheckpointError, match=r"checkpoint '.*/log' is gone.*repeat or lose rows.*Restore the check"):
        run(spark, lake, pipeline)
    shutil.move(tmp_path / "backup", checkpoint)

    shutil.rmtree(lake.first(count_by_sensor))
    run(spark, lake, pipeline)

    assert tuples(log.read_log(spark, lake, stream)) == logged
    assert tuples(read_current(spark, lake, count_by_sensor)) == first == [("a", at(0), at(10), 1, T0.date(), False)]

    # Lost for good, it is made again from the origins in the log: what was taken is taken no more, and what comes is.
    run(spark, lake, pipeline, [*readings("a@21"), b"broken"], readings("a@22"))
    shutil.rmtree(checkpoint)
    (missing,) = [each for each in examine(lake, pipeline) if each.kind == "checkpoint missing"]
    assert missing.heal is not None
    missing.heal()
    assert [each.kind for each in examine(lake, pipeline) if not each.note] == []
    before = [batch.number for batch in log.read_batches(lake, stream)]
    run(spark, lake, pipeline)
    assert [batch.number for batch in log.read_batches(lake, stream)] == before
    run(spark, lake, pipeline, readings("a@25"), readings("a@26"))
    assert log.valid(log.read_log(spark, lake, stream)).count() == 6
    assert [finding.law for finding in audit(spark, lake, pipeline) if not finding.holds] == []


@pytest.mark.long
@pytest.mark.parametrize("behind", [1, 2])
def test_an_older_copy_of_the_checkpoint_is_refused_before_a_file_is_left_out(
    spark: SparkSession, lake: Lake, tmp_path: Path, behind: int
) -> None:
    """Spark plans files that were read since then, and new ones, under numbers that the log holds already."""
    many = replace(stream, source=Files("landing/readings", files_per_batch=100))
    counts = replace(count_by_sensor, of=many)
    of_many, checkpoint = Pipeline(many, (counts,)), lake.checkpoint(stream, "log")
    for number in range(3):
        run(spark, lake, of_many, readings(f"a@{number}"))
        if number == 2 - behind:
            shutil.copytree(checkpoint, tmp_path / "copy")
    shutil.rmtree(checkpoint)
    shutil.move(tmp_path / "copy", checkpoint)
    with pytest.raises(CheckpointError, match=r"is an older copy: .*`tidemark doctor --fix` makes that of files"):
        run(spark, lake, of_many, readings("a@3"), readings("a@4"))
    shutil.rmtree(checkpoint)
    (missing,) = [each for each in examine(lake, of_many) if each.kind == "checkpoint missing"]
    assert missing.heal is not None
    missing.heal()
    run(spark, lake, of_many)
    assert log.read_log(spark, lake, many).count() == 5


@pytest.mark.long
def test_a_batch_that_was_committed_before_its_process_died_is_repeated_and_counts_once(
    spark: SparkSession, lake: Lake
) -> None:
    run(spark, lake, pipeline, readings("a@1"), readings("a@2"))
    commits = Path(lake.checkpoint(stream, "log"), "commits")
    for name in ("1", ".1.crc"):
        (commits / name).unlink(missing_ok=True)
    run(spark, lake, pipeline, readings("a@3"))
    assert log.read_log(spark, lake, stream).count() == 3


def test_a_lake_that_cannot_be_written_is_an_error_that_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    lake = Lake(str(tmp_path / "file" / "lake"))

    with pytest.raises(LeaseError, match=r"cannot write '.*/file/lake/.*Not a directory.*writable.*TIDEMARK_HOME"):
        drain(spark, lake, pipeline, now=lambda: NOW)


@pytest.mark.parametrize(("name", "refused"), [("a%20b", "%"), ("a[1]", "["), ("a*", "*"), ("{a}", "{")])
def test_a_lake_whose_path_delta_or_spark_would_read_otherwise_is_refused(
    tmp_path: Path, name: str, refused: str
) -> None:
    with pytest.raises(SettingsError, match=re.escape(f"{name}' contains {refused!r}; choose a folder without it")):
        Lake(str(tmp_path / name))


def test_a_log_that_cannot_be_written_loses_nothing(spark: SparkSession, lake: Lake) -> None:
    Path(lake.root).mkdir()
    blocked = Path(lake.path(stream.name))
    blocked.write_text("no folder")
    land(stream.source.location(lake), readings("a@1"))

    with pytest.raises(QueryFailed, match=r"Query.*/readings/log.*Not a directory.*correct the cause and run"):
        run(spark, lake, pipeline)
    blocked.unlink()
    run(spark, lake, pipeline, readings("a@2"))

    assert tuples(log.valid(log.read_log(spark, lake, stream)), "event_time") == [(at(1),), (at(2),)]
