"""Python workers are reached by sockets of the file system, and answers of the JVM are not waited for."""

from __future__ import annotations

import stat
from pathlib import Path

from py4j.clientserver import ClientServerConnection
from pyspark.sql import SparkSession

from streaming.spark.sockets import ENABLED, FOLDER, acknowledge_at_once, worker_sockets


def test_sockets_lie_in_a_folder_that_nobody_else_can_enter_and_whose_path_is_short(tmp_path: Path) -> None:
    for scratch in (None, tmp_path / "missing", tmp_path / ("deep" * 30)):
        folder = Path(worker_sockets(scratch)[FOLDER])
        assert stat.S_IMODE(folder.stat().st_mode) == stat.S_IRWXU
        assert len(str(folder)) <= 60


def test_the_workers_of_a_session_on_one_machine_are_reached_by_such_sockets(spark: SparkSession) -> None:
    assert spark.conf.get(ENABLED) == "true"
    assert Path(str(spark.conf.get(FOLDER))).is_dir()
    assert spark.sparkContext.parallelize([1, 2], 2).map(lambda number: number + 1).collect() == [2, 3]


def test_a_long_answer_of_the_jvm_arrives_whole(spark: SparkSession) -> None:
    acknowledge_at_once()
    assert isinstance(vars(ClientServerConnection)["stream"], property)
    assert spark.createDataFrame([], f"`{'é' * 100_000}` int")._jdf.schema().json().count("é") == 100_000
