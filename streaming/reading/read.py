"""Rows of the lake for notebooks, assets and scripts: `read`, and the object that it gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any, overload

import pyarrow as pa
from deltalake.exceptions import DeltaError

from streaming.base import DeclarationError, F, ReadError, counted, needs
from streaming.declare import CURRENT, Operator, Pipeline, operator_in_lake
from streaming.lake import Lake
from streaming.log import read_log, rejected
from streaming.reading.conditions import Untranslatable
from streaming.reading.selection import Choice, new_database
from streaming.reading.stored import names_of_operator, names_of_pipeline, stored_rows
from streaming.tables import Manifest

if TYPE_CHECKING:
    import pandas
    import polars
    from duckdb import DuckDBPyRelation
    from pyspark.sql import DataFrame, SparkSession

_SHOWN_IN_NOTEBOOKS = 10
_WIDEST_IN_NOTEBOOKS = 200


@dataclass(frozen=True)
class Rows:
    """Rows of the lake at one moment, in whichever form is asked for; a notebook shows the first of them."""

    title: str
    choice: Choice = field(repr=False)
    limit: int | None = None

    @cached_property
    def _table(self) -> pa.Table:
        return self.choice.table(self.limit)

    def arrow(self) -> pa.Table:
        """As a table of Arrow's."""
        return self._table

    def pandas(self) -> pandas.DataFrame:
        """As a frame of pandas'; whole numbers with nulls become floats there."""
        frame: pandas.DataFrame = self._table.to_pandas()
        return frame

    def polars(self) -> polars.DataFrame:
        """As a frame of Polars'.

        Raises:
            MissingExtra: Polars is not installed.
        """
        needs("polars", "a frame of Polars'")
        import polars

        frame = polars.from_arrow(self._table)
        assert isinstance(frame, polars.DataFrame)
        return frame

    def duckdb(self) -> DuckDBPyRelation:
        """As a relation of DuckDB's, which further queries can name."""
        return new_database().from_arrow(self._table)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return self.choice.names

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)

    def _repr_html_(self) -> str:
        rows = self._table.slice(0, _SHOWN_IN_NOTEBOOKS).to_pylist(maps_as_pydicts="lossy")
        heads = "".join(f"<th>{escape(name)}</th>" for name in self.columns)
        lines = "".join(f"<tr>{''.join(_cell(value) for value in row.values())}</tr>" for row in rows)
        more = f", of which these are the first {len(rows)}" if len(self) > len(rows) else ""
        caption = f"<p>{escape(self.title)}: {counted(len(self), 'row')}{more}</p>"
        return f"{caption}<table><thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table>"


def _cell(value: object) -> str:
    if value is None:
        return "<td></td>"
    text = str(value)
    cut = text if len(text) <= _WIDEST_IN_NOTEBOOKS else f"{text[:_WIDEST_IN_NOTEBOOKS]}..."
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    style = ' style="text-align: right"' if is_number else ""
    return f"<td{style}>{escape(cut)}</td>"


@overload
def read(
    pipeline: str | Pipeline,
    operator: str | Operator | None = None,
    what: str = CURRENT,
    *,
    where: str | None = None,
    columns: Sequence[str] = (),
    sort: Sequence[str] = (),
    limit: int | None = None,
    as_of: str | int | None = None,
    cut: bool = False,
    lake: Lake | None = None,
    spark: None = None,
) -> Rows: ...


@overload
def read(
    pipeline: str | Pipeline,
    operator: str | Operator | None = None,
    what: str = CURRENT,
    *,
    where: str | None = None,
    columns: Sequence[str] = (),
    sort: Sequence[str] = (),
    limit: int | None = None,
    as_of: str | int | None = None,
    cut: bool = False,
    lake: Lake | None = None,
    spark: SparkSession,
) -> DataFrame: ...


def read(
    pipeline: str | Pipeline,
    operator: str | Operator | None = None,
    what: str = CURRENT,
    *,
    where: str | None = None,
    columns: Sequence[str] = (),
    sort: Sequence[str] = (),
    limit: int | None = None,
    as_of: str | int | None = None,
    cut: bool = False,
    lake: Lake | None = None,
    spark: SparkSession | None = None,
) -> Rows | DataFrame:
    """Rows of a pipeline: those that `tidemark show` prints by the name `what`, without Spark unless it is given.

    `operator` is a view or another operator of the pipeline, its first one if left out. `where` is a condition in
    Spark's SQL; `sort` are columns, `'flights desc'` for the greatest first; `as_of` is a batch, an instant or a
    savepoint. With `cut=True` the versions are read that `current.json` of the pipeline names: all have followed the
    same batches of the logs, so that rows of several tables belong together. The lake is that of the settings, if none
    is given. With a `spark` session the rows are a frame of its.

    Raises:
        DeclarationError: there is no such pipeline, operator, or `what`; the text lists those there are.
        ReadError: a column is not there, nothing is there yet, or only Spark can tell which rows these are; or no
            version of the table is among those that belong together.
    """
    of, shown, there = operator_in_lake(pipeline, operator, lake)
    if cut:
        _check_cut(as_of, spark)
        there = _at_cut(there, of)
    if as_of is not None:
        from streaming.operations import lake_as_of

        there = lake_as_of(there, of, str(as_of))
    if spark is not None:
        return _by_spark(spark, there, of, shown, what, where, columns, sort, limit)
    title = f"{of.name}/{shown.name}: {what}"
    try:
        rows = stored_rows(there, of, shown, what)
    except (DeltaError, FileNotFoundError) as error:
        raise _gone(there, of, title, error) from error
    if rows is None:
        raise _not_stored(there, of, shown, what, title)
    try:
        return Rows(title, _chosen(Choice(rows), where, columns, sort), limit)
    except Untranslatable as unknown:
        raise ReadError(
            f"only Spark can tell what {str(unknown)!r} means for {title}.",
            "Give a session, spark=tidemark.start_session(), or write it with comparisons, and, or, in, like.",
            value=where,
        ) from None
    except ReadError as error:
        raise ReadError(f"{error} {title} has: {', '.join(rows.columns)}.", choices=rows.columns) from None


def _check_cut(as_of: str | int | None, spark: SparkSession | None) -> None:
    if as_of is not None:
        raise ReadError(
            f"cut=True and as_of={as_of!r} are two moments.", "Give one of them.", field="as_of", value=as_of
        )
    if spark is not None:
        raise ReadError(
            "with cut=True rows are read without Spark.",
            "Leave spark out, or let Spark read the versions that current.json names: "
            "spark.read.option('versionAsOf', version).format('delta').load(path).",
            field="spark",
        )


def _gone(lake: Lake, pipeline: Pipeline, title: str, error: Exception) -> Exception:
    """The error for a version of a cut that nobody can read any more; `error` itself where it is of the newest one."""
    if lake.versions is None:
        return error
    return ReadError(
        f"the version of {title} that belongs to the others is not there any more: {error}.",
        f"Run `tidemark run {pipeline.name}`, which names newer ones, or read without cut=True.",
        pipeline=pipeline.name,
    )


def _at_cut(lake: Lake, pipeline: Pipeline) -> Lake:
    """The lake at the versions that belong together."""
    manifest = Manifest.read(lake, pipeline)
    if manifest is None:
        raise ReadError(
            f"there are no versions that belong together of pipeline {pipeline.name!r} yet: there is no file "
            f"{lake.manifest(pipeline)!r}.",
            f"It is written by `tidemark run {pipeline.name}` once all operators have followed the same batches.",
            pipeline=pipeline.name,
        )
    return lake.at_versions(manifest.versions)


def _chosen(choice: Choice, where: str | None, columns: Sequence[str], sort: Sequence[str]) -> Choice:
    if where is not None:
        choice = choice.where(where)
    for entry in sort:
        choice = choice.sorted_by(entry.removesuffix(" desc"), descending=entry.endswith(" desc"))
    for name in columns:
        choice = choice.select(name)
    return choice


def _by_spark(
    spark: SparkSession,
    lake: Lake,
    pipeline: Pipeline,
    operator: Operator,
    what: str,
    where: str | None,
    columns: Sequence[str],
    sort: Sequence[str],
    limit: int | None,
) -> DataFrame:
    readable = _readable(lake, operator)
    if what not in readable:
        raise _unknown(operator, what, readable)
    frame = readable[what](spark)
    if where is not None:
        frame = frame.where(where)
    if sort:
        orders = (F.col(entry.removesuffix(" desc")) for entry in sort)
        pairs = zip(sort, orders, strict=True)
        frame = frame.orderBy(*(order.desc() if entry.endswith(" desc") else order for entry, order in pairs))
    if columns:
        frame = frame.select(*columns)
    return frame if limit is None else frame.limit(limit)


def _readable(lake: Lake, operator: Operator) -> dict[str, Any]:
    from streaming.operators import runtime_of
    from streaming.revisions import of_revisions

    stream, own = operator.reads[0], runtime_of(operator, lake).readable
    return {
        **own,
        "log": lambda spark: read_log(spark, lake, stream.revisions),
        "rejected": lambda spark: rejected(read_log(spark, lake, stream.revisions)),
        # What an operator has forgotten stands before what its stream has.
        **{**of_revisions(lake, stream), **own},
    }


def _not_stored(
    lake: Lake, pipeline: Pipeline, operator: Operator, what: str, title: str
) -> DeclarationError | ReadError:
    stored = (*names_of_operator(lake, operator), *names_of_pipeline(lake, pipeline, operator.reads[0]))
    known = {**_readable(lake, operator), **dict.fromkeys(stored)}
    if what not in known:
        return _unknown(operator, what, known)
    if lake.versions is not None:
        places = tuple(uri.removeprefix(f"{lake.root.rstrip('/')}/") for uri in lake.versions)
        return ReadError(
            f"no version of {title} is among those that belong together, which are of: {', '.join(places)}.",
            f"Read it without cut=True, or run `tidemark run {pipeline.name}`, so that all operators meet again.",
            operator=operator.name,
            value=what,
            choices=places,
        )
    return ReadError(
        f"no table of the lake {lake.root!r} has {title} as it is asked for.",
        f"Run `tidemark run {pipeline.name}` if nothing is there yet; what has to be computed is read with "
        "spark=tidemark.start_session().",
        operator=operator.name,
        value=what,
    )


def _unknown(operator: Operator, what: str, known: dict[str, Any]) -> DeclarationError:
    names = tuple(known)
    return DeclarationError(
        f"{operator.name!r} has no {what!r} to be read; it has: {', '.join(names)}.",
        operator=operator.name,
        choices=names,
    )
