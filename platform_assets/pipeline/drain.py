"""The assets that a drain brings up to date: log, rejected rows, first results and late pairs of one pipeline."""

from collections.abc import Iterator

import dagster as dg
from pydantic import Field
from rich.console import Console

from platform_assets import keys
from platform_assets.events.alerts import report_alerts
from platform_assets.events.counts import count_failed, count_late, count_rejected, rows_since
from platform_assets.events.current import report_current
from platform_assets.events.delivered import report_deliveries
from platform_assets.events.metadata import filter_metadata, position_metadata, table_metadata, watermark_metadata
from platform_assets.events.sources import count_waiting, source_metadata
from platform_assets.events.stream_events import REPORTED_EVERY
from platform_assets.lineage import lineage_of_current, lineage_of_log, lineage_of_rejected, lineage_of_table
from platform_assets.pipeline.checks import report_not_due
from platform_assets.resources import LakeResource, SparkResource
from platform_assets.specs import asset_spec
from streaming import Pipeline
from streaming.base import utc_now
from streaming.declare import CURRENT, FAILED, LATE, Operator, log_columns
from streaming.log import head
from streaming.service import drain_unpaused, look, shown_on

_FATE = {
    "correct": "They wait for the scheduled correction.",
    "update": "The stream corrects what comes within the allowed lateness, the schedule the rest.",
    "join": "They join like all others.",
    "drop": "By declaration they change no result; they stay in the log.",
}


_FRESH = dg.FreshnessPolicy.time_window(fail_window=2 * REPORTED_EVERY)
"""A running stream reports its view as long as the watermark is young enough; when it stops to, the view is late."""


class DrainConfig(dg.Config):
    """The configuration of a drain: how it ends."""

    end_of_input: bool = Field(
        default=False, description="Close the windows still open; rows that come later are late for them."
    )


def drain_assets(pipeline: Pipeline) -> dg.AssetsDefinition:
    """Log, rejected, and per view first results and late pairs: one step, because one process owns both tables.

    Rejected rows, late pairs, and what views leave out are reads of the log, so here they are counted, not copied.
    """

    @dg.multi_asset(name=drain_step(pipeline), specs=list(_specs(pipeline)), can_subset=False)
    def run(
        context: dg.AssetExecutionContext, config: DrainConfig, lake: LakeResource, spark: SparkResource
    ) -> Iterator[dg.MaterializeResult]:
        where, session = lake.lake, spark.spark_session
        heads = {log: head(where, log) for log in pipeline.logs}
        with shown_on(Console(soft_wrap=True)) as progress:
            drained = drain_unpaused(session, where, pipeline, end_of_input=config.end_of_input, progress=progress)
        paused = {name: str(why) for name, why in drained.paused.items()}
        stepped = [operator for operator in pipeline.operators if operator.name not in paused]
        report_deliveries(context.instance, where, pipeline, {**paused, **drained.waiting, **drained.held})
        new = {name: query.rows for name, query in drained.queries.items()}
        for log, before in heads.items():
            yield dg.MaterializeResult(
                asset_key=keys.log_key(log),
                metadata={
                    **table_metadata(where.log(log), lineage_of_log(log)),
                    **watermark_metadata(where, log),
                    "new_rows": rows_since(where, log, -1 if before is None else before.number),
                },
            )
        for stream in pipeline.streams:
            left = source_metadata(where, stream, count_waiting(where, stream))
            context.log_event(dg.AssetObservation(keys.source_key(stream), metadata=left))
            yield dg.MaterializeResult(
                asset_key=keys.rejected_key(stream), metadata=count_rejected(session, where, stream)
            )
        for operator in stepped:
            for table in operator.streamed:
                yield dg.MaterializeResult(
                    asset_key=keys.table_key(operator, table.suffix),
                    metadata={
                        **table_metadata(where.table(operator, table.suffix), lineage_of_table(operator, table.suffix)),
                        **filter_metadata(where, operator, table.suffix),
                        **({} if table.suffix else position_metadata(where, operator)),
                        **({} if table.suffix else {"new_windows": new.get(operator.name, 0)}),
                    },
                )
        for operator in stepped:
            if operator.tells_late:
                late = count_late(context.instance, session, where, operator)
                yield dg.MaterializeResult(asset_key=keys.late_key(operator), metadata=late)
        for operator in stepped:
            if operator.tells_failed:
                metadata = count_failed(session, where, operator)
                yield dg.MaterializeResult(asset_key=keys.failed_key(operator), metadata=metadata)
        for operator in stepped:
            report_current(context, where, operator)
        report_not_due(context.instance, where, pipeline)
        report_alerts(context.instance, look(where, pipeline), utc_now())
        if paused:
            reasons = "\n".join(f"{name}: {why}" for name, why in paused.items())
            raise dg.Failure(f"paused, while all others are done:\n{reasons}", allow_retries=False)

    return run


def drain_step(pipeline: Pipeline) -> str:
    """The name of the step, which run configurations speak of."""
    return keys.dagster_name("drain_step", pipeline.name)


def _specs(pipeline: Pipeline) -> Iterator[dg.AssetSpec]:
    read = "A read of the log, counted here and never copied."
    for stream in pipeline.logs:
        what = "Rows as revisions add them and take them back." if stream.revised else "Event log."
        yield asset_spec(
            pipeline,
            keys.log_key(stream),
            "event_log",
            f"{what} {stream.description}",
            {"spark", "delta"},
            [keys.log_key(stream.revisions) if stream.revised else keys.source_key(stream)],
            log_columns(stream),
            lineage_of_log(stream),
            contract=stream.contract,
            freshness_policy=_FRESH if stream in pipeline.streams and stream.fresh_within is not None else None,
        )
    for stream in pipeline.streams:
        yield asset_spec(
            pipeline,
            keys.rejected_key(stream),
            "side_outputs",
            f"Rows that broke a rule, with payload and reasons. {read}",
            {"spark"},
            [keys.log_key(stream.revisions)],
            log_columns(stream),
            lineage_of_rejected(stream),
            contract=stream.contract,
        )
    for operator in pipeline.operators:
        sources = keys.read_keys(operator)
        for table in operator.streamed:
            is_watched = not table.suffix and getattr(operator, "fresh_within", None) is not None
            columns = operator.columns_of(table.suffix)
            yield asset_spec(
                pipeline,
                keys.table_key(operator, table.suffix),
                "first_results" if operator.overlaid else "results",
                table.description,
                {"spark", "delta"},
                sources,
                columns,
                lineage_of_table(operator, table.suffix),
                _why(pipeline, operator, table.suffix),
                operator.explained_by,
                freshness_policy=_FRESH if is_watched else None,
            )
    for operator in pipeline.operators:
        about = {}
        if operator.tells_late:
            about[LATE] = _about_late(operator)
        if operator.tells_failed:
            about[FAILED] = f"What {operator.kind_name} {operator.name} cannot be computed for, with the error."
        for suffix, text in about.items():
            columns = operator.columns_of(suffix)
            yield asset_spec(
                pipeline,
                keys.table_key(operator, suffix),
                "side_outputs",
                f"{text} {read}",
                {"spark"},
                [keys.log_key(stream) for stream in operator.reads],
                columns,
                lineage_of_table(operator, suffix),
            )


def _why(pipeline: Pipeline, operator: Operator, suffix: str) -> str:
    """The argument of `tidemark why` for a row of a table; empty for tables beside the operator's own."""
    first = " --first" if operator.has_first_results else ""
    return "" if suffix else f"{pipeline.name}/{operator.name}{first}"


def current_assets(pipeline: Pipeline) -> list[dg.AssetSpec]:
    """The current results that follow from several tables, published by whoever has written those."""
    return [
        asset_spec(
            pipeline,
            key,
            "current",
            f"What is current of {operator.name}: {operator.current_meaning}. A plain Delta table, which any engine "
            "reads; every change of it is in the table beside it that ends in _changes.",
            {"spark", "delta"},
            [keys.table_key(operator, table.suffix) for table in operator.tables if table.is_result],
            operator.columns_of(CURRENT),
            lineage_of_current(operator),
            f"{pipeline.name}/{operator.name}",
            operator.explained_by,
        )
        for operator in pipeline.operators
        if operator.overlaid
        for key in keys.current_keys(operator)
    ]


def _about_late(operator: Operator) -> str:
    """A description of what came late, and of what becomes of it."""
    return f"{operator.late_meaning} {_FATE.get(operator.late_policy, '')}".strip()
