"""Golden test of local development: a skeleton that runs at once, and the same code on one machine and on a cluster."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from platform_assets.scaffold import write_stream
from streaming.base.errors import DeclarationError
from streaming.lake.lake import Lake
from tests.support.processes import short_lived
from tests.support.runs import tuples

PROJECT = Path(__file__).resolve().parents[2]
HOUR_0, HOUR_1, HOUR_2 = (datetime(2025, 1, 1, hour, tzinfo=UTC) for hour in range(3))
SAMPLE_RESULTS = [
    ("a", HOUR_0, HOUR_1, 2, 1.5),
    ("a", HOUR_1, HOUR_2, 1, 9.0),
    ("b", HOUR_0, HOUR_1, 1, 5.0),
]


@pytest.mark.long
@pytest.mark.processes
def test_o17_the_skeletons_agree_as_stream_and_batch_on_one_machine_and_on_a_cluster(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = write_stream(tmp_path / "code", "orders_o17")
    monkeypatch.syspath_prepend(str(tmp_path / "code"))
    stream, batch = importlib.import_module("orders_o17"), importlib.import_module("orders_o17_batch")
    here, cluster = Lake(str(tmp_path / "here")), Lake(str(tmp_path / "cluster"))

    stream.land_sample(here)
    streamed, batched = tuples(stream.run(spark, here)), tuples(batch.run(spark, here))

    # The script itself, as its docstring says to run it: executors are processes of their own.
    environment = {
        **os.environ,
        "PYTHONPATH": str(PROJECT),
        "TIDEMARK_HOME": cluster.root,
        "TIDEMARK_MASTER": "local-cluster[1,1,1024]",
        **short_lived(),
    }
    done = subprocess.run(
        [sys.executable, written[0].name],
        cwd=tmp_path / "code",
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "mean_value" in done.stdout

    assert streamed == batched == SAMPLE_RESULTS
    assert tuples(batch.run(spark, cluster)) == SAMPLE_RESULTS


def test_o17_a_skeleton_overwrites_nothing_and_wants_a_name_that_can_be_a_module(tmp_path: Path) -> None:
    mine = tmp_path / "orders_batch.py"
    mine.write_text("mine")

    with pytest.raises(DeclarationError, match=r"orders_batch\.py' exists already.*another name than 'orders'"):
        write_stream(tmp_path, "orders")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]

    with pytest.raises(DeclarationError, match="'my-orders' cannot name a pipeline; use lower-case letters"):
        write_stream(tmp_path, "my-orders")


def test_o17_skeletons_in_a_package_import_each_other_by_their_full_names(tmp_path: Path) -> None:
    package = tmp_path / "outer" / "inner"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()

    _, batch = write_stream(package, "orders")

    assert "from outer.inner.orders import orders_by_hour\n" in batch.read_text()
    assert "python -m outer.inner.orders_batch" in batch.read_text()
