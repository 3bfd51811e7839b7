"""A platform on a lake of its own: the very definitions of the code location, with another home."""

from __future__ import annotations

from collections.abc import Iterator

import dagster as dg
import pytest

from platform_assets.pipeline_definitions import pipeline_definitions
from platform_assets.reports.registry import find_report
from platform_assets.resources import default_resources
from streaming.lake import Lake
from streaming.pipelines.flights import pipeline


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """An instance that leaves nothing behind."""
    with dg.DagsterInstance.ephemeral() as ephemeral:
        yield ephemeral


@pytest.fixture
def platform(lake: Lake) -> dg.Definitions:
    """Flights and their report on the test's lake."""
    return dg.Definitions.merge(
        pipeline_definitions(pipeline, [find_report("on_time_performance")]),
        dg.Definitions(resources=default_resources(lake.root), executor=dg.in_process_executor),
    )
