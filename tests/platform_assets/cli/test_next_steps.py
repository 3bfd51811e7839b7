"""The commands that are proposed fit the pipeline at hand."""

from __future__ import annotations

from platform_assets.cli.next_steps import after_audit, when_nothing_arrived
from platform_assets.demo.pipelines.flights import pipeline as flights
from streaming.lake.lake import Lake
from tests.support.pipelines.beats import pipeline as beats


def test_a_report_is_proposed_only_on_the_pipeline_that_it_reads() -> None:
    assert after_audit(flights)[0] == "tidemark report on_time_performance"
    assert after_audit(beats)[0] == "tidemark show beats current"


def test_a_feed_is_proposed_only_where_there_is_one(lake: Lake) -> None:
    assert when_nothing_arrived(lake, flights)[0] == "tidemark feed flights"
    command, why = when_nothing_arrived(lake, beats)
    assert (command, f"{lake.root}/landing/beats" in why) == ("tidemark run beats", True)
