"""The runs of a pipeline that are under way, so that another one would only wait for them."""

from __future__ import annotations

import dagster as dg

from platform_assets.tags import PIPELINE_TAG
from streaming import Pipeline

_UNFINISHED = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def in_progress(instance: dg.DagsterInstance, pipeline: Pipeline) -> bool:
    """True if a run that writes tables of the pipeline is queued or running."""
    runs = dg.RunsFilter(statuses=_UNFINISHED, tags={PIPELINE_TAG: pipeline.name})
    return instance.get_runs_count(runs) > 0
