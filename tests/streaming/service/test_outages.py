"""What lies outside of a batch: a disk that is really full, a folder that may really not be written."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streaming import Lake
from streaming.audit.laws import audit
from streaming.service.drain import drain
from streaming.service.overview import look
from tests.streaming.service.streams import STREAM, Feeder, ingested, supervised, until
from tests.support.disks import fill, mount, mounted
from tests.support.pipelines.beats import pipeline

pytestmark = pytest.mark.processes


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "disk") as folder:
        yield folder


@pytest.mark.long
def test_a_full_disk_and_a_lost_permission_are_told_waited_out_and_lose_nothing(
    spark: SparkSession, disk: Path
) -> None:
    lake = Lake(str(disk / "lake"))
    feeder, landing, log = Feeder(lake), Path(STREAM.source.location(lake)), Path(lake.log(STREAM))
    feeder.beat()
    with supervised(lake) as supervisor:
        until(lambda: ingested(lake) == 1, "ingested", lake)

        feeder.beat(folder=disk / "staged")
        filler = fill(disk)
        (disk / "staged" / "0001.json").rename(landing / "0001.json")
        until(lambda: look(lake, pipeline).state == "restarting", "restarting on a full disk", lake)
        assert "the disk is full: free some space, and the stream goes on by itself" in look(lake, pipeline).why
        filler.unlink()
        until(lambda: ingested(lake) == 2, "going on with space", lake)

        until(lambda: supervisor.status.state == "running", "running", lake)
        mount("--bind", log, log)
        mount("-o", "remount,bind,ro", log)
        feeder.beat()
        until(lambda: supervisor.status.state == "restarting", "restarting without permission", lake)
        assert "a file may not be read or written: give the permission back" in look(lake, pipeline).why
        subprocess.run(["umount", "--lazy", log], check=True)
        until(lambda: ingested(lake) == 3, "going on with permission", lake)

    drain(spark, lake, pipeline, end_of_input=True)
    assert ingested(lake) == feeder.landed == 3
    assert [finding for finding in audit(spark, lake, pipeline) if finding.broken] == []
