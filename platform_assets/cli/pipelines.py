"""The commands that bring a pipeline on: feed, run, correct, maintain."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from datetime import date, datetime
from functools import partial
from typing import Annotated

import typer
from pyspark.sql import SparkSession
from rich.progress import Progress as Bar

from platform_assets.cli.context import (
    LITTLE,
    PipelineName,
    console,
    current_lake,
    fetch_jars,
    has_little,
    spark_session,
)
from platform_assets.cli.exit_codes import ExitCode
from platform_assets.cli.interrupts import stopping_between_batches
from platform_assets.cli.next_steps import FEEDS, shows_results, when_nothing_arrived
from platform_assets.cli.render import next_step
from platform_assets.demo.feeds import feed_flights
from platform_assets.texts.maintenance import told
from platform_assets.texts.retention import told_drop
from streaming.base import CorrectionsFailed, OperatorError, StreamingError, TidemarkError, counted, utc_now
from streaming.changes import note_together, publish
from streaming.declare import Pipeline, find_pipeline
from streaming.log import QUERY, require_log
from streaming.log import head as newest_batch
from streaming.operations import DeliveredCurrent, deliver_current, drop_old_days
from streaming.operations import maintain as keep_tidy
from streaming.operators import plan_corrections, runtime_of
from streaming.service import JobCounts, corrections_of, drain_unpaused, lineage_of, shown_on
from streaming.sources import SourceBacklog

_A_ROW = 200
"""Bytes of a row in a source that does not tell."""


def feed(
    stream: PipelineName,
    first_day: Annotated[datetime, typer.Option("--from", formats=["%Y-%m-%d"], help="First day, UTC.")] = datetime(
        2013, 1, 1
    ),
    days: Annotated[int, typer.Option(help="How many days.", min=1)] = 7,
    dirty: Annotated[
        float, typer.Option(help="Share of lines damaged on purpose, reproducibly.", min=0, max=1)
    ] = 0.005,
) -> None:
    """Replay real flights into the landing folder.

    They come as the airports' systems would report them: when a flight leaves.
    """
    pipeline = find_pipeline(stream)
    if pipeline.name not in FEEDS:
        where = pipeline.stream.source.location(current_lake())
        raise StreamingError(
            f"there is no feed for {stream!r}; feeds are: {', '.join(FEEDS)}.",
            f"Bring its data into {where} yourself.",
            choices=tuple(FEEDS),
        )
    landing = current_lake().local(pipeline.stream.source.location(current_lake()))
    if landing is None:
        raise StreamingError(
            f"the feed writes to a folder of this machine, not to {current_lake().root!r}", "set TIDEMARK_HOME."
        )
    with Bar(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("replaying flights", total=None)
        report = feed_flights(
            landing, first_day.date(), days, dirty, lambda done, total: bar.update(task, completed=done, total=total)
        )
    console.print(str(report))
    next_step(console, f"tidemark run {stream}", "ingests them and computes first results.")


def run(
    pipeline_name: PipelineName,
    end_of_input: Annotated[bool, typer.Option("--end-of-input", help="Close the windows still open.")] = False,
) -> None:
    """Ingest all that has arrived, bring the views up to date, deliver what follows."""
    pipeline = find_pipeline(pipeline_name)
    fetch_jars(pipeline)
    backlogs = _Backlogs(pipeline)
    with spark_session(is_short=_is_soon_done(backlogs)) as spark:
        with stopping_between_batches() as watch, shown_on(console) as progress:
            done = drain_unpaused(
                spark, current_lake(), pipeline, end_of_input=end_of_input, progress=progress, watch=watch
            )
        _say_unread(pipeline, done.unknown, backlogs)
        _say_waiting(done.waiting)
        for why in done.held.values():
            console.print(f"{why[0].upper()}{why[1:]}", soft_wrap=True)
        done.raise_paused()
        empty = [stream for stream in pipeline.streams if stream.name not in done.heads]
        if empty:
            places = ", ".join(stream.source.location(current_lake()) for stream in empty)
            console.print(f"Nothing has arrived in {places} yet.", soft_wrap=True)
        if not done.heads:
            next_step(console, *when_nothing_arrived(current_lake(), pipeline))
            return
        _say_backlog(spark, pipeline)


def correct(
    pipeline_name: PipelineName,
    day: Annotated[list[datetime] | None, typer.Option(formats=["%Y-%m-%d"], help="A day, UTC; repeatable.")] = None,
) -> None:
    """Recompute the windows that late data has changed, and deliver what is current by then.

    Without --day, on all days that need it.
    """
    pipeline = find_pipeline(pipeline_name)
    lake = current_lake()
    failed: list[CorrectionsFailed] = []
    with (
        spark_session(is_short=has_little(pipeline)) as spark,
        Bar(console=console, transient=True, disable=not console.is_terminal) as bar,
    ):
        for operator in pipeline.operators:
            if not operator.corrected:
                continue
            runtime = runtime_of(operator, lake)
            days = (
                [entry.date() for entry in day]
                if day
                else [pending.day for pending in plan_corrections(spark, lake, operator)]
            )
            task = bar.add_task(f"correcting {operator.name}", total=len(days))

            def show_progress(done: date, rows: int, name: str = operator.name, of: str = operator.result_name) -> None:
                bar.advance(task)  # noqa: B023 -- called before the loop goes on
                bar.console.print(f"{name} {done}: {counted(rows, of)} corrected")

            with lineage_of(pipeline, partial(corrections_of, lake, pipeline, operator)) as told:
                try:
                    corrected = runtime.correct(spark, days, utc_now, show_progress)
                    told[operator.name] = JobCounts(sum(corrected.values()))
                    if not corrected:
                        bar.console.print(f"{operator.name}: no day has late pairs that are not corrected yet.")
                except CorrectionsFailed as error:
                    told[operator.name] = JobCounts(sum(error.corrected.values()), error=str(error))
                    failed.append(error)
                publish(spark, lake, operator)
        note_together(lake, pipeline)
        followed = deliver_current(spark, lake, pipeline)
    _say_delivered(pipeline, followed)
    if len(failed) > 1:
        raise OperatorError("\n".join(map(str, failed))) from failed[0]
    if failed:
        raise failed[0]
    next_step(console, *shows_results(pipeline))
    if followed.paused:
        raise typer.Exit(ExitCode.FAILED)


def maintain(pipeline_name: PipelineName) -> None:
    """Compact the tables and remove what nobody needs any more.

    Days that are older than the retention of a stream go from its log. The stream of the pipeline may go on meanwhile.
    """
    pipeline = find_pipeline(pipeline_name)
    lake = current_lake()
    for stream in pipeline.streams:
        require_log(lake, stream)
    with ExitStack() as held:
        say = partial(console.print, soft_wrap=True)
        for dropped in drop_old_days(lambda: held.enter_context(spark_session()), lake, pipeline, say):
            say(told_drop(dropped))
    done = keep_tidy(lake, pipeline)
    for entry in done:
        console.print(told(entry))
    if not done:
        console.print(f"No table of {pipeline.name} was written since it was maintained last.")
    next_step(console, f"tidemark audit {pipeline_name}", "shows that no result has changed.")


class _Backlogs:
    """The backlogs of a pipeline's sources; what is read to count them once is not read again."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._lake = lake = current_lake()
        self._counts = [
            (stream, stream.source.backlog(lake, lake.checkpoint(stream, QUERY))) for stream in pipeline.streams
        ]

    def now(self) -> list[SourceBacklog]:
        """The backlog of each stream's source."""
        heads = [newest_batch(self._lake, stream) for stream, _ in self._counts]
        memories = [{} if head is None else head.source for head in heads]
        return [count(memory) for (_, count), memory in zip(self._counts, memories, strict=True)]


def _is_soon_done(backlogs_of: _Backlogs) -> bool:
    """True if little waits in the sources; false where one does not tell."""
    try:
        backlogs = backlogs_of.now()
    # Whoever ingests says what is wrong with the source or the log.
    except TidemarkError:
        return False
    return sum(each.items * _A_ROW if each.size is None else each.size for each in backlogs) < LITTLE


def _say_unread(pipeline: Pipeline, unknown: Mapping[str, Mapping[str, int]], backlogs: _Backlogs) -> None:
    """Print what came and is in no column, and what lies in the sources and will never be taken, if there is any."""
    for stream_name, counts in unknown.items():
        fields = ", ".join(f"{name} ({rows:,} rows)" for name, rows in counts.items())
        of = "" if len(pipeline.streams) == 1 else f" of {stream_name}"
        text = f"Fields{of} that nobody declared: {fields}. Payloads that have one are kept in _raw of the log."
        if counts:
            console.print(text, soft_wrap=True)
    for backlog in backlogs.now():
        if backlog.warning:
            console.print(backlog.warning, soft_wrap=True)


def _say_waiting(waiting: Mapping[str, str]) -> None:
    for name, why in waiting.items():
        text = f"Delivery {name} waits for its target, and goes on with the next run: {why}"
        console.print(text, soft_wrap=True)


def _say_delivered(pipeline: Pipeline, delivered: DeliveredCurrent) -> None:
    """Print what became of the deliveries of what is current, of which there may be none."""
    if delivered.holder:
        text = f"{delivered.holder} runs {pipeline.name}, and delivers what changed: {', '.join(delivered.rows)}"
        console.print(text, soft_wrap=True)
        return
    for name, rows in delivered.rows.items():
        if name not in {*delivered.waiting, *delivered.paused}:
            console.print(f"{name}: {counted(rows, 'row')} delivered")
    _say_waiting(delivered.waiting)
    for why in delivered.paused.values():
        console.print(f"{why[0].upper()}{why[1:]}", soft_wrap=True)


def _say_backlog(spark: SparkSession, pipeline: Pipeline) -> None:
    lake = current_lake()
    days = {pending.day for operator in pipeline.operators for pending in plan_corrections(spark, lake, operator)}
    if days:
        console.print(
            f"Late data has changed windows of {counted(len(days), 'day')} already published as first results."
        )
        next_step(console, f"tidemark correct {pipeline.name}", "recomputes exactly those windows.")
    else:
        next_step(console, *shows_results(pipeline))
