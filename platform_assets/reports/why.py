"""Why a number of a report is what it is: the results that it reads, and the verdicts that have let it out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import Any

import pyarrow as pa
from deltalake.exceptions import DeltaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from platform_assets.errors import PlatformError
from platform_assets.reports.publication import (
    Publication,
    batches_of,
    publications,
    published_as_of,
    read_publication,
    read_section_with,
    read_sections,
)
from platform_assets.reports.publish import sources_as_of
from platform_assets.reports.report import Report, Section
from platform_assets.reports.sources import Sources
from quality import Pin, QualityError, all_verdicts
from streaming.base import BATCH, DAY, RELEASE, LogError, OperatorError, ReadError, counted, literal
from streaming.declare import Operator
from streaming.lake import Lake
from streaming.operations import recomputed as recomputed_as_of
from streaming.provenance import Evidence, InputRow, Verdict, What, Why, compared, why
from streaming.reading import StoredRows, key_as_texts, key_as_typed, near_keys, rows_of_key, value_as_typed

_UNREADABLE = (PySparkException, DeltaError, QualityError, OperatorError, LogError, ReadError, PlatformError)
"""The errors of whoever reads versions that were pinned, once they are gone, or not of what is declared by now."""
MOST = 5
"""The most results that are explained down to their rows; the others are named."""
MOST_READ = 1_000
"""The most results of an operator that are named as those that a number of a report was made of."""


def why_of_report(
    spark: SparkSession, lake: Lake, report: Report, key: Mapping[str, object], what: What = "current"
) -> Why:
    """Explain the rows of a published report that a key chooses, of the first section that has these columns.

    Inputs are results of operators at the versions that the report was made from: those that agree with the key in the
    columns that both have. The first few of them are explained down to the rows of the logs, as they are now; of an
    older publication as of the batches that it was made from.

    Args:
        spark: The session that computes.
        lake: Of one with a cut the publication of exactly these batches is explained; where there is none, the report
            as it would have been.
        report: The report, as it is declared now.
        key: The values of columns that tell which rows are meant.
        what: What is current, or the first publication that has the key.

    Raises:
        ReadError: nothing is published, no section has these columns, no row has this key, or the rows that were
            published then were cleaned away.
    """
    texts = key_as_texts(key)
    if lake.cut is not None:
        past = published_as_of(lake, report)
        if past is None:
            return _unpublished(spark, lake, report, texts)
        return _published(spark, replace(lake, cut=None), report, past, texts, what, dict(lake.cut))
    if what == "first":
        first, notes = _first(lake, report, texts)
        batches = batches_of(lake, report, first.pins)
        if batches is None:
            notes.append("its results are told as they are now, as their logs cannot be read as they were pinned")
        return _published(spark, lake, report, first, texts, what, batches, notes)
    return _published(spark, lake, report, _newest(lake, report), texts, what)


def _newest(lake: Lake, report: Report) -> Publication:
    publication = read_publication(lake, report.name)
    if publication is None:
        raise ReadError(
            f"report {report.name!r} is not published yet in the lake {lake.root!r}.",
            f"Run `tidemark report {report.name}`.",
            report=report.name,
        )
    return publication


def _first(lake: Lake, report: Report, key: Mapping[str, str | None]) -> tuple[Publication, list[str]]:
    """The first publication that had the key, as far as anybody knows, with notes; the newest where none has it."""
    newest = _newest(lake, report)
    if not key:
        return newest, []
    every = [*publications(lake, report)]
    unread = 0
    for publication in reversed(every):
        try:
            table = read_section_with(lake, publication, key)
        except ReadError:
            unread += 1
            continue
        if table is not None and _has(table, key):
            notes = []
            if unread:
                older = counted(unread, "older publication")
                notes.append(
                    f"{older} may have had it: the rows of {'it' if unread == 1 else 'them'} were cleaned away"
                )
            if every[-1].versions[report.name] > 0:
                notes.append(f"nobody knows any more what was published before run {every[-1].run_id}")
            return publication, notes
    return newest, []


def _has(table: pa.Table, key: Mapping[str, str | None]) -> bool:
    """True if a section has rows of the key, whose columns may have had other types then."""
    try:
        return bool(rows_of_key(StoredRows(table, tuple(table.column_names)), key).num_rows)
    except ReadError:
        return False


def _published(
    spark: SparkSession,
    lake: Lake,
    report: Report,
    publication: Publication,
    key: Mapping[str, str | None],
    what: What,
    batches: Mapping[str, int] | None = None,
    notes: Sequence[str] = (),
) -> Why:
    """The answer on one publication; `batches`: those as of which its results are explained, None for as now."""
    sections = read_sections(lake, publication)
    section = _section(report, sections, key)
    published = tuple(_chosen(report, sections[section.table], key).to_pylist())
    sources = Sources(spark, lake, report.pipeline, publication.pins, publication.dimensions, report.reads)
    recomputed, why_not = _recomputed(section, sources, key)
    of = {name: published[0][name] for name in key}
    inputs, unread = _inputs(report, sources, of)
    agrees, said = compared(published, Evidence(inputs, recomputed, why_not=why_not))
    then = None if batches is None else lake.as_of(batches)
    upstream, more = _explained(spark, lake, report, inputs) if then is None else _as_of(spark, then, report, inputs)
    return Why(
        report.pipeline.name,
        section.table,
        "report",
        what,
        of,
        agrees,
        said,
        published,
        recomputed or (),
        inputs,
        rules=_rules(section, sources),
        versions=_versions(publication, section),
        verdicts=tuple(_verdicts(lake, publication)),
        upstream=upstream,
        notes=(*notes, *publication.footnotes, *unread, *more),
    )


def _unpublished(spark: SparkSession, lake: Lake, report: Report, key: Mapping[str, str | None]) -> Why:
    """The answer on a report as it would have been of batches of which nothing was published."""
    with recomputed_as_of(spark, lake, report.pipeline.operators) as there:
        sources = sources_as_of(spark, there, report)
        tables = {section.table: section.rows(sources).toArrow() for section in report.sections}
        section = _section(report, tables, key)
        rows = tuple(_chosen(report, tables[section.table], key).to_pylist())
        of = {name: rows[0][name] for name in key}
        inputs, unread = _inputs(report, sources, of)
        upstream, more = _explained(spark, there, report, inputs)
        return Why(
            report.pipeline.name,
            section.table,
            "report",
            "current",
            of,
            None,
            f"nothing was published of these batches; it would have been {'; '.join(map(key_as_typed, rows))}",
            (),
            rows,
            inputs,
            rules=_rules(section, sources),
            versions={**_releases(), "tables": {pin.table: pin.version for pin in sources.pins.tables}},
            upstream=upstream,
            notes=(*sources.footnotes, *unread, *more),
        )


def _inputs(report: Report, sources: Sources, key: Mapping[str, Any]) -> tuple[tuple[InputRow, ...], list[str]]:
    """The results of all operators that agree with the key, and notes on those that are not told."""
    found = [_results(sources, operator, key) for operator in report.operators]
    return tuple(row for rows, _ in found for row in rows), [note for _, note in found if note]


def _section(report: Report, sections: Mapping[str, pa.Table], key: Mapping[str, str | None]) -> Section:
    for section in report.sections:
        # One that was declared since is not among what was published.
        if section.table in sections and {*key} <= {*sections[section.table].column_names}:
            return section
    columns = tuple(dict.fromkeys(name for table in sections.values() for name in table.column_names))
    raise ReadError(
        f"no section of report {report.name!r} has all of {', '.join(key)}.",
        f"Its columns are: {', '.join(columns)}.",
        report=report.name,
        choices=columns,
    )


def _chosen(report: Report, table: pa.Table, key: Mapping[str, str | None]) -> pa.Table:
    stored = StoredRows(table, tuple(table.column_names))
    rows = rows_of_key(stored, key)
    if rows.num_rows and key:
        return rows
    near = near_keys(stored, key, tuple(key) or tuple(table.column_names))
    typed = key_as_typed(key)
    raise ReadError(
        f"no row of report {report.name!r} has {typed}."
        if key
        else f"nothing tells which row of {report.name!r} is meant.",
        f"Near are: {'; '.join(near)}.",
        report=report.name,
        value=typed,
        choices=near,
    )


def _recomputed(
    section: Section, sources: Sources, key: Mapping[str, str | None]
) -> tuple[tuple[Mapping[str, Any], ...] | None, str]:
    """The rows of the section by the versions that were published, for the key; None where these are gone."""
    try:
        _check_in_place(sources.replaced)
        table = section.rows(sources).toArrow()
        return tuple(rows_of_key(StoredRows(table, tuple(table.column_names)), key).to_pylist()), ""
    except _UNREADABLE as error:
        return None, f"the versions that it was made from cannot be read any more: {_first_line(error)}"


def _results(sources: Sources, operator: Operator, key: Mapping[str, Any]) -> tuple[list[InputRow], str]:
    """The results of an operator, as they were pinned, that agree with the key in the columns that both have.

    With a note where these are not all.
    """
    tables = {sources.lake.table(operator, each.suffix) for each in operator.tables}
    try:
        _check_in_place([pin for pin in sources.replaced if pin.uri in tables])
        frame = sources.current(operator)
        rows = _agreeing(frame, key).limit(MOST_READ + 1).toArrow().to_pylist()
    except _UNREADABLE as error:
        return [], f"the results of {operator.name} that it was made from cannot be read: {_first_line(error)}"
    note = f"of {operator.name} more than {MOST_READ:,} results agree with it; no others are named" * (
        len(rows) > MOST_READ
    )
    names = [name for name in operator.columns if name in frame.columns]
    identity = operator.result_key or operator.columns
    found = []
    for row in sorted(rows[:MOST_READ], key=lambda each: [value_as_typed(each[name]) for name in identity]):
        own = {name: row[name] for name in identity}
        values = {name: row[name] for name in names}
        found.append(InputRow(operator.name, key_as_typed(own), own, row.get(BATCH, -1), values))
    return found, note


def _check_in_place(replaced: Sequence[Pin]) -> None:
    """Refuse pins of tables that were made anew since.

    Raises:
        ReadError: there are some.
    """
    if replaced:
        names = tuple(pin.table for pin in replaced)
        raise ReadError(
            f"another table was built in place of {', '.join(names)} since.", "Publish the report again.", value=names
        )


def _agreeing(frame: DataFrame, key: Mapping[str, Any]) -> DataFrame:
    for name, value in key.items():
        if name in frame.columns:
            frame = frame.where(
                F.col(f"`{name}`").eqNullSafe(literal(value) if hasattr(value, "hour") else F.lit(value))
            )
        elif isinstance(value, date) and name == DAY.strip("_") and DAY in frame.columns:
            frame = frame.where(F.col(DAY) == F.lit(value))
    return frame


def _as_of(
    spark: SparkSession, lake: Lake, report: Report, inputs: tuple[InputRow, ...]
) -> tuple[tuple[Why, ...], tuple[str, ...]]:
    """The answers for the first of the results, as of batches that were pinned."""
    named = {row.stream for row in inputs[:MOST]}
    try:
        with recomputed_as_of(spark, lake, [each for each in report.operators if each.name in named]) as there:
            return _explained(spark, there, report, inputs)
    except (OperatorError, LogError) as refused:
        return (), (f"the results are not explained as of then: {refused}",)


def _explained(
    spark: SparkSession, lake: Lake, report: Report, inputs: tuple[InputRow, ...]
) -> tuple[tuple[Why, ...], tuple[str, ...]]:
    """The answers for the first of the results, and notes on what has changed since, and on the others."""
    answers, notes = list[Why](), list[str]()
    operators = {operator.name: operator for operator in report.operators}
    for row in inputs[:MOST]:
        try:
            answer = why(report.pipeline, operators[row.stream], row.origin, lake=lake, spark=spark)
        except ReadError:
            notes.append(_gone(lake, row))
            continue
        except (OperatorError, LogError) as refused:
            notes.append(str(refused))
            continue
        if not answer.published:
            notes.append(_gone(lake, row))
        elif dict(row.values) not in [dict(each) for each in answer.published]:
            since = "since the report was published" if lake.cut is None else "from what was pinned"
            notes.append(f"{row.stream} {row.place} has changed {since}")
        answers.append(answer)
    left = len(inputs) - MOST
    if left > 0:
        last = inputs[MOST]
        notes.append(f"{counted(left, 'more result')}, such as: tidemark why {last.stream} {last.place}")
    return tuple(answers), tuple(notes)


def _gone(lake: Lake, row: InputRow) -> str:
    if lake.cut is not None:
        return f"{row.stream} {row.place} is not there as of the batches that were pinned"
    return f"{row.stream} {row.place} is not current any more: publish the report again"


def _rules(section: Section, sources: Sources) -> dict[str, str]:
    """The expectations on a section by name; none where what they are made from cannot be read any more."""
    try:
        return {expectation.name: expectation.meaning for expectation in section.suite(sources).expectations}
    except _UNREADABLE:
        return {}


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]


def _releases() -> dict[str, Any]:
    import pyspark

    return {"tidemark": RELEASE, "spark": pyspark.__version__}


def _versions(publication: Publication, section: Section) -> dict[str, Any]:
    pinned = {pin.table: pin.version for pin in (*publication.pins.tables, *publication.dimensions.values())}
    return {
        **_releases(),
        "run": publication.run_id,
        "published_at": publication.published_at.isoformat(),
        "tables": {f"reports/{section.table}": publication.versions[section.table], **pinned},
    }


def _verdicts(lake: Lake, publication: Publication) -> Iterator[Verdict]:
    pins = (*publication.pins.tables, *publication.dimensions.values())
    judged: list[tuple[str, int, str | None]] = [(pin.table, pin.version, pin.table_id) for pin in pins]
    judged += [(f"reports/{table}", version, None) for table, version in publication.versions.items()]
    for table, version, identity in judged:
        # A table that was dropped and built anew has versions of the same numbers.
        own = (each for each in all_verdicts(lake, table, version) if identity in (None, each.table_id))
        for verdict in {each.expectation: each for each in own}.values():
            yield Verdict(table, version, verdict.expectation, verdict.outcome, verdict.observed, verdict.judged_at)
