"""`tidemark plan` and `tidemark apply`: what a changed declaration means for the lake, and bringing it about."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from typing import Annotated

import typer
from pyspark.sql import SparkSession
from rich.status import Status

from platform_assets.cli.broken import print_broken
from platform_assets.cli.context import AnyNames, AsJson, console, current_lake, spark_session
from platform_assets.cli.documents import BrokenModuleDocument, PipelinePlanDocument, PlanDocument
from platform_assets.cli.exit_codes import ExitCode
from platform_assets.cli.rebuild import ShownRebuild, publish_again
from platform_assets.cli.render import next_step, print_first, rows_to_print
from platform_assets.cli.requests import named_pipelines
from platform_assets.errors import BadSelection
from platform_assets.reports.publication import is_of_older_results, read_publication
from platform_assets.reports.registry import declared_reports
from platform_assets.texts.rollout import part_lines, side_by_side
from streaming.base import BrokenModule, counted, utc_now
from streaming.declare import Operator, Pipeline, broken_modules
from streaming.lake import Lake
from streaming.operations import (
    Applied,
    Judgement,
    Replay,
    Rollout,
    RolloutListener,
    RolloutPart,
    judge,
    replay,
    roll_out,
    rollout,
)
from streaming.reading import ResultKeys, json_lines, result_keys

_MOST_RESULTS = 5_000_000
"""The results of which the keys are read, from the columns of the key alone."""


def plan(
    names: AnyNames = None,
    diff: Annotated[
        int | None,
        typer.Option(metavar="DAYS", help="Replay so many last days by what is declared, and compare results.", min=1),
    ] = None,
    diff_keys: Annotated[
        str | None,
        typer.Option(help="Replay all rows of some keys, such as 'origin=LGA,origin=EWR', and compare results."),
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Results to print of each replay; 20 if left out.", min=1)] = None,
    as_json: AsJson = False,
) -> None:
    """Tell how what is declared differs from the lake, and what apply would do; writes nothing.

    Exits with 0 if there is nothing to do, with 2 if changes are pending or a report is outdated, and with 1 if it
    fails, or if no name is given and a module cannot be used.
    Spark is started for --diff alone.
    """
    lake, pipelines, broken = current_lake(), named_pipelines(names), _broken(names)
    found = [(pipeline, rollout(pipeline, lake=lake), _outdated_reports(pipeline)) for pipeline in pipelines]
    pending = [each.pipeline for _, each, outdated in found if each.pending or outdated]
    with _Replays(diff, _keys(diff_keys), rows_to_print(limit)) as replays:
        if as_json:
            told = [_document(*each, replays) for each in found]
            modules = [BrokenModuleDocument.model_validate(module, from_attributes=True) for module in broken]
            pending_parts = sum(each.pending for each in told)
            PlanDocument(lake=lake.root, pending=pending_parts, pipelines=told, broken_modules=modules).print()
        else:
            print_broken(broken)
            for pipeline, each, outdated in found:
                _print(pipeline, each)
                _print_outdated(outdated)
                for part in each.parts:
                    _print_replay(replays.of(pipeline, part), limit)
            if pending:
                next_step(console, f"tidemark apply {' '.join(pending)}", "does this.")
    if broken:
        # Nobody knows what the pipelines of such a module need.
        raise typer.Exit(ExitCode.FAILED)
    if pending:
        raise typer.Exit(ExitCode.USAGE)


def apply(
    names: AnyNames = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Do what plan tells: build anew what has changed, one after the other, beside what is read.

    Streams may run meanwhile. If it is killed, running it again goes on where it was.
    Tables of what is not declared any more are named, and stay.
    Exits with 2 if something is left that waits for a word or is refused, and with 1 if no name is given and a module
    cannot be used.
    """
    lake = current_lake()
    pipelines, broken = named_pipelines(names), _broken(names)
    print_broken(broken)
    pending: list[Pipeline] = []
    outdated: list[Pipeline] = []
    for pipeline in pipelines:
        found = rollout(pipeline, lake=lake)
        _print(pipeline, found)
        if any(map(_is_done_by_apply, found.pending)):
            pending.append(pipeline)
        if reports := _outdated_reports(pipeline):
            outdated.append(pipeline)
            _print_outdated(reports)
    if pending or outdated:
        if not yes:
            typer.confirm(f"\nApply this to {lake.root}?", abort=True)
        console.print()
        _apply(lake, [each for each in pipelines if each in pending or each in outdated], pending, outdated)
    left = [
        part for pipeline in pipelines for part in rollout(pipeline, lake=lake).pending if not _is_done_by_apply(part)
    ]
    if left:
        if not pending and not outdated:
            console.print("\nNothing of this is done by apply; the lines above say what to do.")
    elif not pending and not outdated:
        console.print("\nThere is nothing to apply.")
    if broken:
        raise typer.Exit(ExitCode.FAILED)
    if left:
        raise typer.Exit(ExitCode.USAGE)


def _broken(names: Sequence[str] | None) -> tuple[BrokenModule, ...]:
    """The modules that cannot be used, whose pipelines are missing where all are meant."""
    return () if names else broken_modules()


def _apply(
    lake: Lake, pipelines: Sequence[Pipeline], pending: Sequence[Pipeline], outdated: Sequence[Pipeline]
) -> None:
    with spark_session() as spark:
        for pipeline in pipelines:
            done, in_place = Applied({}, {}), list[str]()
            try:
                if pipeline in pending:
                    with console.status(f"applying {pipeline.name}") as status:
                        done = roll_out(spark, lake, pipeline, utc_now, _Shown(status, in_place))
            finally:
                # What is in place stays so where another operator fails.
                if in_place or pipeline in outdated:
                    publish_again(spark, pipeline)
            for name, why in done.paused.items():
                console.print(f"{name} is paused: {why}", soft_wrap=True)
            if done.held_by:
                console.print(
                    f"{pipeline.name} is run by {done.held_by}, which has the declarations that it began with.",
                    soft_wrap=True,
                )
                next_step(console, f"tidemark restart {pipeline.name}", "lets it go on by those of now.")
            else:
                _say_rest(pipeline, rollout(pipeline, lake=lake))


class _Replays(ExitStack):
    """The replays that are asked for; Spark is started with the first of them, and let go of at the end."""

    def __init__(self, days: int | None, keys: Mapping[str, Sequence[str]], rows: int) -> None:
        super().__init__()
        self._days, self._keys, self._rows = days, keys, rows

    def of(self, pipeline: Pipeline, part: RolloutPart) -> Replay | Judgement | None:
        """The results of the sample, or its rows of a stream with other rules; None where nothing can be compared."""
        if (self._days is None and not self._keys) or not part.is_pending:
            return None
        operator = next((each for each in pipeline.operators if each.name == part.name), None)
        stream = next((each for each in pipeline.streams if each.name == part.name), None)
        if operator is not None and part.action in ("rebuild", "run") and part.reads is not None and part.reads.rows:
            lake, keys = current_lake(), self._keys or None
            return replay(self._spark, lake, operator, days=self._days, keys=keys, limit=self._rows)
        if stream is not None and self._days is not None and any(word.startswith("rule ") for word in part.changes):
            return judge(self._spark, current_lake(), stream, days=self._days, now=utc_now())
        return None

    @cached_property
    def _spark(self) -> SparkSession:
        return self.enter_context(spark_session(why="a sample of the log is replayed"))


class _Shown(RolloutListener):
    """A rollout on the console: the rebuild under way, and each that is done, which is added to `in_place` by name."""

    def __init__(self, status: Status, in_place: list[str]) -> None:
        self._status = status
        self._in_place = in_place

    def rebuilds(self, operator: Operator) -> ShownRebuild:
        return ShownRebuild(operator.name, self._status)

    def rebuilt(self, operator: Operator, rows: int) -> None:
        self._in_place.append(operator.name)
        console.print(f"{operator.name}: {counted(rows, 'result')} built from the log.")


def _print(pipeline: Pipeline, found: Rollout) -> None:
    console.print(str(found), style="bold")
    for part in found.parts:
        if part.state == "unchanged":
            continue
        reports = [f"    report {name} is published again" for name in _reports(pipeline, part)]
        for line in (*part_lines(part, _keys_of(pipeline, part)), *reports):
            console.print(line, soft_wrap=True)


def _keys_of(pipeline: Pipeline, part: RolloutPart) -> ResultKeys | None:
    """The keys of the results that are built anew; None where there are none, or where they are too many to be read."""
    operator = next((each for each in pipeline.operators if each.name == part.name), None)
    if operator is None or part.action != "rebuild" or not 0 < part.published <= _MOST_RESULTS:
        return None
    return result_keys(current_lake(), pipeline, operator)


def _print_outdated(reports: Sequence[str]) -> None:
    for name in reports:
        console.print(f"~ report {name}: of results that were built anew since")


def _print_replay(found: Replay | Judgement | None, limit: int | None) -> None:
    if found is None:
        return
    console.print(f"\n{found}", soft_wrap=True)
    if isinstance(found, Replay):
        if found.caveat:
            console.print(found.caveat, soft_wrap=True)
        if found.rows.num_rows:
            print_first(console, side_by_side(found), found.operator, limit, chooses_columns=False)


def _keys(text: str | None) -> dict[str, list[str]]:
    """The values that are asked for of each column of a text such as `origin=LGA,origin=EWR`.

    Raises:
        BadSelection: an entry names no column or no value.
    """
    keys: dict[str, list[str]] = {}
    for entry in text.split(",") if text else ():
        name, equals, value = entry.partition("=")
        if not equals or not name.strip():
            raise BadSelection(f"--diff-keys {text!r} cannot be used: write COLUMN=VALUE, several separated by commas.")
        keys.setdefault(name.strip(), []).append(value.strip())
    return keys


def _say_rest(pipeline: Pipeline, found: Rollout) -> None:
    """Tell who is to do the rest once a rollout is through."""
    rest = [part for part in found.parts if part.is_pending]
    for part in rest:
        console.print(f"{part.kind} {part.name} stays: {part.advice}", soft_wrap=True)
    if any(part.action == "run" for part in rest):
        next_step(console, f"tidemark run {pipeline.name}", "takes in what there is, and builds the rest.")
    else:
        next_step(console, f"tidemark audit {pipeline.name}", "proves every number again from the log.")


def _reports(pipeline: Pipeline, part: RolloutPart) -> Sequence[str]:
    """The reports that are published again once a part is built anew: those that were published before."""
    if part.action != "rebuild":
        return ()
    lake, reports = current_lake(), declared_reports().values()
    mine = [report.name for report in reports if report.pipeline == pipeline]
    return [name for name in mine if read_publication(lake, name) is not None]


def _outdated_reports(pipeline: Pipeline) -> list[str]:
    """The reports on results that were built anew since, such as by an apply that was killed before it published."""
    mine = [report.name for report in declared_reports().values() if report.pipeline == pipeline]
    publications = {name: read_publication(current_lake(), name) for name in mine}
    return [name for name, each in publications.items() if each is not None and is_of_older_results(each)]


def _is_done_by_apply(part: RolloutPart) -> bool:
    return part.action in ("run", "rebuild")


def _document(pipeline: Pipeline, found: Rollout, outdated: Sequence[str], replays: _Replays) -> PipelinePlanDocument:
    document = {**found.document(), "outdated": outdated}
    for told, part in zip(document["parts"], found.parts, strict=True):
        told["reports"] = list(_reports(pipeline, part))
        keys = _keys_of(pipeline, part)
        told["keys"] = None if keys is None else vars(keys)
        match replays.of(pipeline, part):
            case Replay() as of:
                rows = [json.loads(row) for row in json_lines(of.rows.column_names, [of.rows])]
                told["replay"] = {**vars(of), "rows": rows}
            case Judgement() as of:
                told["judgement"] = vars(of)
    return PipelinePlanDocument.model_validate(document)
