"""One broken module beside good reports is named, with file, line and reason, and leaves the others alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from platform_assets.demo import reports
from platform_assets.reports.errors import UnknownReport
from platform_assets.reports.registry import broken_reports, declared_reports, find_report
from tests.support.packages import importable, write_modules

SALES = """
from platform_assets.reports.report import Report, Section
from docs.examples.sales import pipeline

sections = [Section(table, "", lambda sources: None, lambda sources: None) for table in {tables}]
report = Report(pipeline, "", tuple(sections))
"""


@pytest.fixture
def declare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Writes modules that lie beside the reports of the project."""
    monkeypatch.setattr(reports, "__path__", [*reports.__path__, str(tmp_path)])
    with importable(tmp_path):
        yield lambda **modules: write_modules(tmp_path, modules)


def test_a_report_that_cannot_be_imported_is_named_and_the_others_are_found(
    declare: Callable[..., None], tmp_path: Path
) -> None:
    declare(bad="\n1 / 0", sales=SALES.format(tables=["sales"]))

    assert list(declared_reports()) == ["on_time_performance", "sales"]
    line = (
        f"module platform_assets.demo.reports.bad is broken: {tmp_path}/bad.py:2: ZeroDivisionError: division by zero"
    )
    assert [str(broken) for broken in broken_reports()] == [line]
    with pytest.raises(UnknownReport) as refused:
        find_report("bad")
    assert str(refused.value).splitlines()[1:] == [line]


def test_two_reports_that_write_one_table_stay_out(declare: Callable[..., None]) -> None:
    declare(sales=SALES.format(tables=["sales", "profit"]), profit=SALES.format(tables=["profit"]))

    assert list(declared_reports()) == ["on_time_performance"]
    what = "both write table 'profit'; rename that section in one of them"
    assert [broken.reason for broken in broken_reports()] == [
        f"it and module platform_assets.demo.reports.sales {what}",
        f"it and module platform_assets.demo.reports.profit {what}",
    ]
