"""A lake as of a batch, an instant or a savepoint: all tables of a pipeline as of the same batches."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from streaming.base import LogError, NoVersionError, SavepointError, utc_now
from streaming.declare import Operator, Pipeline
from streaming.lake import Lake
from streaming.log import check_as_of, head, read_batches
from streaming.operations.savepoint import Savepoint, savepoints
from streaming.tables import storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FOLDER = "_as_of"


def lake_as_of(lake: Lake, pipeline: Pipeline, when: str) -> Lake:
    """The lake as of `when`: the number of a batch, an instant in ISO 8601 (UTC if it has no zone), or a savepoint.

    As of an instant there are the batches that were processed by then.

    Raises:
        SavepointError: it is nothing of the kind.
        LogError: there is no such batch, the pipeline has several streams, whose batches have numbers of their own, or
            rows of days that were dropped since had not all come by then.
    """
    there = lake.as_of(_batches_of(lake, pipeline, when))
    for stream in pipeline.streams:
        check_as_of(there, stream)
    return there


def _batches_of(lake: Lake, pipeline: Pipeline, when: str) -> Mapping[str, int]:
    if when.isdigit():
        return _batch(lake, pipeline, int(when))
    saved = Savepoint.read(lake, pipeline, when) if when.isidentifier() else None
    if saved is not None:
        return saved.batches
    try:
        instant = datetime.fromisoformat(when)
    except ValueError as error:
        names = ", ".join(each.name for each in savepoints(lake, pipeline)) or "none"
        raise SavepointError(
            f"{when!r} is no batch, no instant such as 2026-03-02T09:00, and no savepoint of pipeline "
            f"{pipeline.name!r}; savepoints are: {names}."
        ) from error
    return _by_then(lake, pipeline, instant if instant.tzinfo else instant.replace(tzinfo=UTC))


@contextmanager
def recomputed(spark: SparkSession, lake: Lake, operators: Iterable[Operator]) -> Iterator[Lake]:
    """A lake with a cut in which each of `operators` can be read: what has no version there is computed from the logs.

    By today's declaration, in steps as ever, into a folder that is removed afterwards. A lake without a cut is handed
    back as it is.

    Raises:
        OperatorError: an operator does not follow the logs so far yet.
        NoVersionError: one cannot be computed, because a log that it reads has lost days by its retention.
    """
    lacking = [] if lake.cut is None else [each for each in operators if _lacks_version(lake, each)]
    if not lacking:
        yield lake
        return
    for operator in lacking:
        _check_computable(lake, operator)
    from streaming.operators import runtime_of

    folder = lake.path(_FOLDER, uuid.uuid4().hex)
    there = lake.with_recomputed(lacking, folder)
    try:
        for operator in lacking:
            with closing(runtime_of(operator, there)) as runtime:
                for step in runtime.steps(spark, utc_now):
                    step.run()
        yield there
    finally:
        storage.remove_folder(folder)


def forget_recomputed(lake: Lake, before: datetime | None = None) -> None:
    """Remove what processes have left that died while they computed: what was written `before`, or all of it."""
    for name in list(storage.folders(lake.path(_FOLDER))):
        folder = lake.path(_FOLDER, name)
        written = (info.mtime for _, info in storage.walked(folder, lambda name: True))
        if before is None or max(written, default=before) <= before:
            storage.remove_folder(folder)


def _lacks_version(lake: Lake, operator: Operator) -> bool:
    from streaming.operators import runtime_of

    try:
        runtime_of(operator, lake).versions()
    except NoVersionError:
        return True
    return False


def _check_computable(lake: Lake, operator: Operator) -> None:
    from streaming.operators import runtime_of, whole_since

    others = [*(each.name for each in operator.reads_current), *(each.name for each in operator.external)]
    if others:
        try:
            runtime_of(operator, lake).versions()
        except NoVersionError as without:
            raise NoVersionError(
                f"{without} Nor can it be computed for that batch: of {' and '.join(others)}, which it reads besides "
                "its logs, only what is there now is known."
            ) from without
    since = whole_since(lake, operator)
    if since is not None:
        try:
            runtime_of(operator, lake).versions()
        except NoVersionError as without:
            raise NoVersionError(
                f"{without} Nor can it be computed any more: rows of days before {since} were dropped by the retention "
                "of what it reads."
            ) from without


def _batch(lake: Lake, pipeline: Pipeline, number: int) -> dict[str, int]:
    if len(pipeline.streams) > 1:
        names = " and ".join(stream.name for stream in pipeline.streams)
        raise LogError(
            f"pipeline {pipeline.name!r} has the streams {names}, each with batches of its own, so {number} is of none "
            "of them; give an instant or a savepoint."
        )
    newest = head(lake, pipeline.stream)
    if newest is None or newest.number < number:
        there = "none yet" if newest is None else f"those from 0 to {newest.number}"
        raise LogError(f"stream {pipeline.stream.name!r} has no batch {number}; it has {there}.")
    return {pipeline.stream.name: number}


def _by_then(lake: Lake, pipeline: Pipeline, instant: datetime) -> dict[str, int]:
    numbers: dict[str, int] = {}
    for stream in pipeline.streams:
        batches = read_batches(lake, stream)
        by_then = (batch.number for batch in batches if batch.summary.processed_at <= instant)
        newest = next(by_then, None)
        if newest is not None:
            numbers[stream.name] = newest
    if not numbers:
        raise LogError(f"no stream of pipeline {pipeline.name!r} had a batch at {instant.isoformat()} yet.")
    return numbers
