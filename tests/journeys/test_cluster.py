"""Clusters whose executors get the code of a project from the driver alone, by one archive."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming import Lake
from tests.support.feeds import land
from tests.support.instants import at
from tests.support.processes import short_lived
from tests.support.services import starting
from tests.support.standalone import Standalone
from tests.support.waiting import until
from tests.support.yarn import Yarn
from tidemark.testing import read

PROJECT = Path(__file__).resolve().parents[2]
PACKAGE = "code_of_the_project"
DECLARED = """
from streaming import Ascending, Files, Json, Keyed, Pipeline, Stream

beats = Stream("beats", Files("landing/beats"), Json("id string, at timestamp"), "at", Ascending())


def count(key, row):
    key.beats = (key.beats or 0) + 1
    key.emit(beats=key.beats)


counted = Keyed("counted", beats, by=("id",), state="beats bigint", result="beats bigint", on_row=count)
pipeline = Pipeline(beats, (counted,))
"""
# What a packed environment has in its place is a whole Python; this one borrows that of the test.
PYTHON = """#!/bin/sh
environment=$(dirname "$(dirname "$(readlink -f "$0")")")
PYTHONPATH="$environment/lib:$PYTHONPATH" exec {python} "$@"
"""
FILES = [[{"id": name, "at": at(number).isoformat()} for name in "ab"] for number in range(6)]


def packed(folder: Path) -> Path:
    """An archive of an environment in which the project's package is."""
    package, python = folder / "lib" / PACKAGE, folder / "bin" / "python"
    package.mkdir(parents=True)
    python.parent.mkdir()
    (package / "__init__.py").touch()
    (package / "counting.py").write_text(DECLARED)
    python.write_text(PYTHON.format(python=sys.executable))
    python.chmod(0o755)
    archive = folder.with_suffix(".tar.gz")
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, ".")
    return archive


class Shipped:
    """A lake with landed rows, and a driver of it whose executors get the project's code by an archive alone."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, files: Sequence[list[dict[str, str]]]) -> None:
        self._folder = folder
        self._archive = packed(folder / "environment")
        monkeypatch.syspath_prepend(str(folder / "environment" / "lib"))
        self.declared = importlib.import_module(f"{PACKAGE}.counting")
        self.lake = Lake(str(folder / "lake"))
        for batch in files:
            land(self.declared.beats.source.location(self.lake), batch)

    def driver(self, cluster: Mapping[str, str]) -> subprocess.Popen[str]:
        """A drain on the cluster that these variables name."""
        return subprocess.Popen(
            [sys.executable, "-c", "from platform_assets.cli import main; main()", "run", "beats"],
            # Here the driver finds the project. On YARN Spark hands PYTHONPATH on, so executors would find it, too.
            cwd=self._folder / "environment" / "lib",
            env=os.environ
            | {
                "PYTHONPATH": str(PROJECT),
                "PYSPARK_PYTHON": "./environment/bin/python",
                "TIDEMARK_SPARK_ARCHIVES": f"{self._archive}#environment",
                "TIDEMARK_HOME": self.lake.root,
                "TIDEMARK_PIPELINES": PACKAGE,
                "TIDEMARK_SPARK_DRIVER_HOST": "127.0.0.1",
                "TIDEMARK_SPARK_DRIVER_MEMORY": "1g",
                "TIDEMARK_SPARK_EXECUTOR_MEMORY": "512m",
                "TIDEMARK_SPARK_SQL_SHUFFLE_PARTITIONS": "1",
                **short_lived(),
                **cluster,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def counted(self, spark: SparkSession) -> list[tuple[Any, ...]]:
        """What the function has published."""
        return read(spark, self.lake, self.declared.counted, "current", "id", "_at", "beats")


@pytest.mark.long
@pytest.mark.processes
def test_a_driver_ships_what_executors_need_and_a_worker_killed_in_mid_batch_changes_no_result(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = Shipped(tmp_path, monkeypatch, FILES)
    # The workers know the library, as an environment that is packed has it; of the project they know nothing.
    with Standalone(tmp_path / "spark", 1, {"PYTHONPATH": str(PROJECT)}) as cluster:
        driver = shipped.driver({"TIDEMARK_MASTER": cluster.url})
        commits = Path(shipped.lake.checkpoint(shipped.declared.beats, "log"), "commits")
        until(lambda: (commits / "1").exists() or driver.poll() is not None, "two batches in the log", 180)
        cluster.kill("worker")
        assert not (commits / "5").exists()
        cluster.start()
        output, _ = driver.communicate(timeout=300)
    assert driver.returncode == 0, output
    assert shipped.counted(spark) == [(name, at(number), number + 1) for name in "ab" for number in range(len(FILES))]


@pytest.mark.long
@pytest.mark.processes
def test_what_a_driver_ships_reaches_the_containers_of_yarn(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = Shipped(tmp_path, monkeypatch, FILES[:1])
    with ExitStack() as running:
        with starting("YARN"):
            cluster = running.enter_context(Yarn(tmp_path / "yarn"))
        driver = shipped.driver(cluster.environment)
        output, _ = driver.communicate(timeout=300)
    assert driver.returncode == 0, output
    assert shipped.counted(spark) == [(name, at(0), 1) for name in "ab"]
