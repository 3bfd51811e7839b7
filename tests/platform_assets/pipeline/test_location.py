"""The code location loads what can be loaded, and warns of everything else."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from platform_assets.demo import reports
from platform_assets.demo import suites as demo_suites
from platform_assets.pipeline.component import PipelinesComponent
from platform_assets.pipeline.location import definitions, loadable_definitions
from platform_assets.resources import default_resources
from streaming.base.errors import DeclarationError
from tests.support.packages import importable, pipeline_module, write_modules


def test_a_component_holds_the_pipelines_that_it_names_and_stands_beside_others() -> None:
    def held(*names: str) -> dg.Definitions:
        return PipelinesComponent(pipelines=[*names]).build_defs(dg.ComponentTree.for_test().load_context)

    assert held().assets == []
    # The location that the folder of components is may have several of them.
    both = dg.Definitions.merge(held("flights"), held())
    everything = definitions().resolve_asset_graph().get_all_asset_keys()
    assert both.resolve_asset_graph().get_all_asset_keys() == everything
    with pytest.raises(DeclarationError, match="there is no pipeline 'fligths'; declared are: flights"):
        held("fligths")


def test_broken_pipelines_reports_and_suites_are_left_out_each_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    shop, suites, own_reports = (tmp_path / name for name in ("shop", "suites", "own_reports"))
    modules = {"__init__": "", "bad": "1 / 0", "good": pipeline_module("good"), "unjudged": pipeline_module("unjudged")}
    write_modules(shop, modules)
    write_modules(suites, {"unjudged": "\nimport nothing_like_this"})
    write_modules(own_reports, {"chart": "def f(:"})
    monkeypatch.setenv("TIDEMARK_PIPELINES", "shop")
    monkeypatch.setattr(demo_suites, "__path__", [*demo_suites.__path__, str(suites)])
    monkeypatch.setattr(reports, "__path__", [*reports.__path__, str(own_reports)])

    with importable(tmp_path):
        merged = dg.Definitions.merge(*loadable_definitions(), dg.Definitions(resources=default_resources()))

    dg.Definitions.validate_loadable(merged)
    assert {key.path[0] for key in merged.resolve_asset_graph().get_all_asset_keys()} == {"good"}
    assert [record.getMessage() for record in caplog.records if record.name == "tidemark"] == [
        f"left out: module shop.bad is broken: {shop / 'bad.py'}:1: ZeroDivisionError: division by zero",
        f"left out: module platform_assets.demo.reports.chart is broken: {own_reports / 'chart.py'}:1: SyntaxError: "
        "invalid syntax",
        "pipeline unjudged is left out: module platform_assets.demo.suites.unjudged is broken: "
        f"{suites / 'unjudged.py'}:2: ModuleNotFoundError: No module named 'nothing_like_this'. Correct it; until then "
        "its pipeline is neither judged nor reported.",
    ]
