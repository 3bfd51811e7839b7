"""The assets that a drain brings up to date: log, rejected rows, first results and late pairs of one pipeline."""

from collections.abc import Iterator

import dagster as dg
from pydantic import Field
from rich.console import Console

from platform_assets import keys
from platform_assets.events.counts import count_late, count_rejected
from platform_assets.events.metadata import table_metadata, watermark_metadata
from platform_assets.events.stream_events import REPORTED_EVERY
from platform_assets.resources import LakeResource, SparkResource
from streaming import Pipeline, drain
from streaming.service import shown_on

_FATE = {
    "correct": "They wait for the scheduled correction.",
    "update": "The stream corrects what comes within the allowed lateness, the schedule the rest.",
    "drop": "By declaration they change no result; they stay in the log.",
}


_FRESH = dg.FreshnessPolicy.time_window(fail_window=2 * REPORTED_EVERY)
"""A running stream reports its view as long as the watermark is young enough; when it stops to, the view is late."""


class DrainConfig(dg.Config):
    """How a drain ends."""

    end_of_input: bool = Field(
        default=False, description="Close the windows still open; rows that come later are late for them."
    )


def drain_assets(pipeline: Pipeline) -> dg.AssetsDefinition:
    """Log, rejected, and per view first results and late pairs: one step, because one process owns both tables.

    Rejected rows and late pairs are reads of the log, so here they are counted, not copied.
    """

    @dg.multi_asset(name=drain_step(pipeline), specs=list(_specs(pipeline)), can_subset=False)
    def run(
        context: dg.AssetExecutionContext, config: DrainConfig, lake: LakeResource, spark: SparkResource
    ) -> Iterator[dg.MaterializeResult]:
        where, session = lake.lake, spark.spark_session
        with shown_on(Console(soft_wrap=True)) as progress:
            drained = drain(session, where, pipeline, end_of_input=config.end_of_input, progress=progress)
        new = {name: query.rows for name, query in drained.queries.items()}
        yield dg.MaterializeResult(
            asset_key=keys.log_key(pipeline),
            metadata={
                **table_metadata(where.log(pipeline.stream)),
                **watermark_metadata(where, pipeline),
                "new_rows": new.get("log", 0),
            },
        )
        yield dg.MaterializeResult(
            asset_key=keys.rejected_key(pipeline), metadata=count_rejected(session, where, pipeline)
        )
        for view in pipeline.views:
            yield dg.MaterializeResult(
                asset_key=keys.view_key(view),
                metadata={
                    **table_metadata(where.first(view)),
                    **watermark_metadata(where, pipeline),
                    "new_windows": new.get(view.name, 0),
                },
            )
            late = count_late(context.instance, session, where, view)
            yield dg.MaterializeResult(asset_key=keys.late_key(view), metadata=late)
            if view in pipeline.updated:
                yield dg.MaterializeResult(
                    asset_key=keys.updates_key(view), metadata=table_metadata(where.updates(view))
                )
            if view.early:
                yield dg.MaterializeResult(asset_key=keys.open_key(view), metadata=table_metadata(where.open(view)))

    return run


def drain_step(pipeline: Pipeline) -> str:
    """The name of the step, which run configurations speak of."""
    return keys.dagster_name("drain_step", pipeline.name)


def _specs(pipeline: Pipeline) -> Iterator[dg.AssetSpec]:
    stream, log = pipeline.stream, keys.log_key(pipeline)
    read = "A read of the log, counted here and never copied."
    yield _spec(pipeline, log, keys.EVENT_LOG, f"Event log. {stream.description}", {"spark", "delta"})
    yield _spec(
        pipeline,
        keys.rejected_key(pipeline),
        keys.EVENT_LOG,
        f"Rows that broke a rule, with payload and reasons. {read}",
        {"spark"},
        log,
    )
    for view in pipeline.views:
        meaning = "\n".join(f"- `{name}`: {one.meaning}" for name, one in view.aggregates.items())
        description = f"First results, one row per closed window. {view.description}\n\n{meaning}"
        spec = _spec(pipeline, keys.view_key(view), keys.FIRST_RESULTS, description, {"spark", "delta"}, log)
        yield spec if view.fresh_within is None else spec.replace_attributes(freshness_policy=_FRESH)
        yield _spec(
            pipeline,
            keys.late_key(view),
            keys.FIRST_RESULTS,
            f"Pairs of row and window that came after their window was closed. {_FATE[view.late]} {read}",
            {"spark"},
            log,
        )
        if view in pipeline.updated:
            yield _spec(
                pipeline,
                keys.updates_key(view),
                keys.FIRST_RESULTS,
                f"Windows corrected by the stream itself, by late pairs within {view.allowed_lateness}.",
                {"spark", "delta"},
                log,
            )
        if view.early:
            yield _spec(
                pipeline,
                keys.open_key(view),
                keys.FIRST_RESULTS,
                "The windows still open, as they stand. Provisional.",
                {"spark", "delta"},
                log,
            )


def _spec(
    pipeline: Pipeline, key: dg.AssetKey, group: str, description: str, kinds: set[str], *deps: dg.AssetKey
) -> dg.AssetSpec:
    return dg.AssetSpec(key, deps=deps, group_name=group, description=description, kinds=kinds, owners=[pipeline.owner])
