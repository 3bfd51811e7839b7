"""Files as a source."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from streaming import Files, Pipeline, drain
from streaming.examples import late_counts
from streaming.lake.lake import Lake
from streaming.sources import files
from tests.streaming.sources.contract import SourceCase, SourceContract
from tests.support.feeds import land, readings


class FilesCase(SourceCase):
    def __init__(self, lake: Lake) -> None:
        self.source = Files("landing", files_per_batch=2)
        self._landing = Path(self.source.location(lake))

    def deliver(self, *payloads: bytes) -> str:
        return land(self._landing, payloads).name

    def change(self, name: str) -> None:
        with (self._landing / name).open("ab") as file:
            file.write(b"more\n")

    def lose(self, name: str) -> None:
        (self._landing / name).unlink()

    def remove(self) -> None:
        shutil.rmtree(self._landing)


class TestFiles(SourceContract):
    @pytest.fixture
    def case(self, lake: Lake) -> FilesCase:
        return FilesCase(lake)


@pytest.mark.parametrize(("bytes_of_one_task", "files_of_the_log"), [(2**20, 1), (0, 2)])
def test_one_task_takes_a_batch_of_small_files_and_writes_one_file(
    bytes_of_one_task: int, files_of_the_log: int, spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_OF_ONE_TASK", bytes_of_one_task)
    stream = replace(late_counts.readings, source=Files("landing", files_per_batch=2))
    for reading in ("a@1", "b@2"):
        land(Path(stream.source.location(lake)), readings(reading))
    drain(spark, lake, Pipeline(stream, (replace(late_counts.count_by_sensor, of=stream),)))
    log = DeltaTable(lake.log(stream))
    assert len(log.file_uris()) == files_of_the_log
    rows = log.to_pyarrow_table()
    assert sorted(rows["id"].to_pylist()) == ["a", "b"]
    assert len({origin["position"] for origin in rows["_origin"].to_pylist()}) == 2
