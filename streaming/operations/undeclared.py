"""Tables of operators and deliveries that are not declared: they are named, and removed only when that is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from streaming.base import DeclarationError, OperatorError, SavepointError
from streaming.declare import Pipeline
from streaming.lake import OF_KEYS, OF_STREAMS, Lake
from streaming.operations.savepoint import savepoints
from streaming.operators import next_of
from streaming.service import take_lease
from streaming.tables import delta, recorded_declaration, storage


@dataclass(frozen=True)
class UndeclaredTable:
    """A table that nothing declared has: `operator` is the view, function or delivery that made it."""

    operator: str
    name: str
    uri: str


def undeclared_tables(lake: Lake, pipeline: Pipeline) -> Iterator[UndeclaredTable]:
    """The tables beside the logs of a pipeline that none of its operators or deliveries has any more."""
    declared = {
        each.table_name(suffix)
        for operator in pipeline.operators
        for each in (operator, next_of(operator))
        for suffix in ("", *operator.reserved_suffixes)
    }
    declared |= {each.table_name(suffix) for each in pipeline.deliveries for suffix in each.reserved_suffixes}
    declared |= {each.table_name(suffix) for each in pipeline.receivers for suffix in each.reserved_suffixes}
    for stream in pipeline.streams:
        for name in sorted(storage.folders(lake.path(stream.name))):
            if name in declared or name in OF_STREAMS or (stream.revised and name in OF_KEYS):
                continue
            uri = lake.path(stream.name, name)
            table = delta.open_table(uri)
            if table is not None:
                recorded = recorded_declaration(table)
                operator = name if recorded is None else recorded["operator"]
                yield UndeclaredTable(operator, name, uri)


def drop(lake: Lake, pipelines: Sequence[Pipeline], operator: str) -> list[UndeclaredTable]:
    """Remove the tables that an operator or a delivery has left behind; returns which.

    Raises:
        DeclarationError: it is still declared.
        SavepointError: a savepoint needs its tables.
        OperatorError: there is no table of it.
        LeaseError: the pipeline beside whose log they lie is running.
    """
    for pipeline in pipelines:
        anew = {entry.name: f"build it anew with `tidemark rebuild {operator}`" for entry in pipeline.operators}
        anew |= {
            entry.name: f"deliver all of it again with `tidemark redeliver {pipeline.name} {operator} --all`"
            for entry in pipeline.deliveries
        }
        if operator in anew:
            raise DeclarationError(
                f"{operator!r} is declared in pipeline {pipeline.name!r}; take it out of the declaration, or "
                f"{anew[operator]}. Nothing was removed."
            )
    left = [(pipeline, table) for pipeline in pipelines for table in undeclared_tables(lake, pipeline)]
    removed = [(pipeline, table) for pipeline, table in left if table.operator == operator]
    if not removed:
        raise OperatorError(
            f"no table in {lake.root!r} was left by a view or delivery {operator!r}; left are those of: "
            f"{', '.join(sorted({table.operator for _, table in left})) or 'none'}."
        )
    _check_not_saved(lake, removed)
    for pipeline, table in removed:
        with take_lease(lake, pipeline):
            storage.remove_folder(table.uri)
            for stream in pipeline.streams:
                storage.remove(lake.plan_of_corrections(stream.name, operator))
    return [table for _, table in removed]


def _check_not_saved(lake: Lake, removed: Sequence[tuple[Pipeline, UndeclaredTable]]) -> None:
    uris = {table.uri for _, table in removed}
    for pipeline in {pipeline.name: pipeline for pipeline, _ in removed}.values():
        for saved in savepoints(lake, pipeline):
            if any(not table.kept_at and lake.path(table.place) in uris for table in saved.tables):
                raise SavepointError(
                    f"savepoint {saved.name!r} of pipeline {pipeline.name!r} needs these tables; drop it first with "
                    f"`tidemark savepoint {pipeline.name} {saved.name} --drop`. Nothing was removed."
                )
