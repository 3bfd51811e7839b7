"""What the commands say of modules that cannot be used."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streaming import Pipeline
from streaming.lake.lake import Lake
from streaming.operations.retention import drop_old_days
from tests.platform_assets.conftest import Tidemark, Typed
from tests.support.packages import importable, pipeline_module, write_modules
from tests.support.pipelines.beats import beats, by_id


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The package of pipelines `shop`, with one broken module."""
    folder = tmp_path / "shop"
    write_modules(folder, {"__init__": "", "bad": "x = 1\n1 / 0"})
    monkeypatch.setenv("TIDEMARK_PIPELINES", "shop")
    with importable(tmp_path):
        yield folder


def test_every_command_that_looks_for_a_pipeline_names_the_broken_module(shop: Path, tidemark: Tidemark) -> None:
    write_modules(shop, {"good": pipeline_module("good")})
    line = f"module shop.bad is broken: {shop / 'bad.py'}:2: ZeroDivisionError: division by zero"

    code, text = tidemark("status")
    assert (code, text.count(line), "Next: tidemark up good" in text) == (0, 1, True)
    for command in ("status bad", "run bad", "up bad", "rebuild bad_hourly"):
        code, text = tidemark(command)
        assert (code, text.count(line)) == (1, 1), command


def test_status_names_a_broken_module_that_is_the_only_one(shop: Path, tidemark: Tidemark) -> None:
    code, text = tidemark("status")
    assert (code, "module shop.bad is broken" in text, "Next: tidemark new stream NAME" in text) == (0, True, True)


def test_a_plan_of_all_pipelines_fails_where_a_module_is_broken(shop: Path, tidemark: Tidemark, typed: Typed) -> None:
    code, text = tidemark("plan")
    assert (code, "module shop.bad is broken" in text) == (1, True)
    code, out, _ = typed("plan --json")
    (module,) = json.loads(out)["broken_modules"]
    assert (code, module["module"], module["line"], module["reason"]) == (
        1,
        "shop.bad",
        2,
        "ZeroDivisionError: division by zero",
    )
    code, text = tidemark("apply --yes")
    assert (code, "module shop.bad is broken" in text, "There is nothing to apply." in text) == (1, True, True)

    write_modules(shop, {"good": pipeline_module("good")})
    code, out, _ = typed("plan good --json")
    assert (code, json.loads(out)["broken_modules"]) == (2, []), "the pipeline that is named is there"


def test_no_day_of_a_log_goes_while_a_module_is_broken_whose_streams_may_follow_it(shop: Path, lake: Lake) -> None:
    kept = replace(beats, retention="2 days")
    (retention,) = drop_old_days(_no_session, lake, Pipeline(kept, (replace(by_id, of=kept),)))
    assert (retention.rows, retention.keeps) == (
        0,
        "a stream of a module that cannot be used may follow it: module shop.bad is broken: "
        f"{shop / 'bad.py'}:2: ZeroDivisionError: division by zero",
    )


def _no_session() -> SparkSession:
    raise AssertionError("nothing has to be computed")
