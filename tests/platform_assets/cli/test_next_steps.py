"""The commands that are proposed fit the pipeline at hand."""

from __future__ import annotations

import shlex
from datetime import date

import pytest

from platform_assets.cli.next_steps import after_audit, when_nothing_arrived
from platform_assets.cli.retract import print_preview
from platform_assets.demo.pipelines.flights import pipeline as flights
from streaming.lake.lake import Lake
from streaming.operations.retract import RetractionPreview, RowChoice
from tests.support.pipelines.beats import pipeline as beats


def test_a_report_is_proposed_only_on_the_pipeline_that_it_reads() -> None:
    assert after_audit(flights)[0] == "tidemark report on_time_performance"
    assert after_audit(beats)[0] == "tidemark show beats current"


def test_a_feed_is_proposed_only_where_there_is_one(lake: Lake) -> None:
    assert when_nothing_arrived(lake, flights)[0] == "tidemark feed flights"
    command, why = when_nothing_arrived(lake, beats)
    assert (command, f"{lake.root}/landing/beats" in why) == ("tidemark run beats", True)


@pytest.mark.parametrize("where", ["id rlike '^x[a-z]+$'", 'city = "Köln"', "note like '[/a]%'", "id = 'a'"])
def test_the_proposed_retraction_is_of_the_rows_that_were_shown(where: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither the terminal nor a shell takes anything of the condition for its own."""
    one = RetractionPreview("orders", 1, {date(2026, 1, 1): 1}, ({"id": "[b]x"},))
    print_preview(one, "orders", RowChoice(where), ())
    printed = capsys.readouterr().out
    command = printed[printed.index("tidemark retract") : printed.index("--reason")]
    assert shlex.split(command) == ["tidemark", "retract", "orders", "--where", where]
    assert "[b]x" in printed
