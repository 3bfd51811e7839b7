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
from streaming import Pipeline, Windowed, drain
from streaming.declare import Operator, TableSpec
from streaming.service import ingest_query, shown_on

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
        for stream in pipeline.streams:
            yield dg.MaterializeResult(
                asset_key=keys.log_key(stream),
                metadata={
                    **table_metadata(where.log(stream)),
                    **watermark_metadata(where, stream),
                    "new_rows": new.get(ingest_query(pipeline, stream), 0),
                },
            )
            yield dg.MaterializeResult(
                asset_key=keys.rejected_key(stream), metadata=count_rejected(session, where, stream)
            )
        for operator in pipeline.operators:
            for table in operator.streamed:
                yield dg.MaterializeResult(
                    asset_key=keys.table_key(operator, table.suffix),
                    metadata={
                        **table_metadata(where.table(operator, table.suffix)),
                        **({} if table.suffix else watermark_metadata(where, operator.reads[0])),
                        **({} if table.suffix else {"new_windows": new.get(operator.name, 0)}),
                    },
                )
        for view in pipeline.views:
            late = count_late(context.instance, session, where, view)
            yield dg.MaterializeResult(asset_key=keys.late_key(view), metadata=late)

    return run


def drain_step(pipeline: Pipeline) -> str:
    """The name of the step, which run configurations speak of."""
    return keys.dagster_name("drain_step", pipeline.name)


def _specs(pipeline: Pipeline) -> Iterator[dg.AssetSpec]:
    read = "A read of the log, counted here and never copied."
    for stream in pipeline.streams:
        log = keys.log_key(stream)
        yield _spec(pipeline, log, keys.EVENT_LOG, f"Event log. {stream.description}", {"spark", "delta"})
        rejected = f"Rows that broke a rule, with payload and reasons. {read}"
        yield _spec(pipeline, keys.rejected_key(stream), keys.EVENT_LOG, rejected, {"spark"}, log)
    for operator in pipeline.operators:
        logs = [keys.log_key(stream) for stream in operator.reads]
        for table in operator.streamed:
            key = keys.table_key(operator, table.suffix)
            spec = _spec(pipeline, key, keys.FIRST_RESULTS, _about(operator, table), {"spark", "delta"}, *logs)
            is_watched = not table.suffix and getattr(operator, "fresh_within", None) is not None
            yield spec.replace_attributes(freshness_policy=_FRESH) if is_watched else spec
    for view in pipeline.views:
        late = f"Pairs of row and window that came after their window was closed. {_FATE[view.late]} {read}"
        yield _spec(pipeline, keys.late_key(view), keys.FIRST_RESULTS, late, {"spark"}, keys.log_key(view.of))


def _about(operator: Operator, table: TableSpec) -> str:
    """What a table holds, and of a view's first results what each value means."""
    if table.suffix or not isinstance(operator, Windowed):
        return table.description
    meaning = "\n".join(f"- `{name}`: {one.meaning}" for name, one in operator.aggregates.items())
    return f"First results, one row per closed window. {operator.description}\n\n{meaning}"


def _spec(
    pipeline: Pipeline, key: dg.AssetKey, group: str, description: str, kinds: set[str], *deps: dg.AssetKey
) -> dg.AssetSpec:
    return dg.AssetSpec(key, deps=deps, group_name=group, description=description, kinds=kinds, owners=[pipeline.owner])
