"""What the commands say of modules that cannot be used."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.platform_assets.conftest import Tidemark
from tests.support.packages import importable, pipeline_module, write_modules


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
