"""Why a number of a report is what it is: the results that it reads, and the verdicts that have let it out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date
from typing import Any

import pyarrow as pa
from deltalake.exceptions import DeltaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from platform_assets.reports.publication import Publication, read_publication, read_report
from platform_assets.reports.report import Report, Section
from platform_assets.reports.sources import Sources
from quality import verdicts_for
from streaming.base import BATCH, DAY, RELEASE, OperatorError, ReadError, counted, literal
from streaming.declare import Operator
from streaming.lake import Lake
from streaming.provenance import Evidence, InputRow, Verdict, Why, compared, why
from streaming.reading import StoredRows, key_as_texts, key_as_typed, near_keys, rows_of_key, value_as_typed

MOST = 5
"""The most results that are explained down to their rows; the others are named."""
MOST_READ = 1_000
"""The most results of an operator that are named as those that a number of a report was made of."""


def why_of_report(spark: SparkSession, lake: Lake, report: Report, key: Mapping[str, object]) -> Why:
    """Explain the rows of a published report that a key chooses, of the first section that has these columns.

    Inputs are results of operators at the versions that the report was made from: those that agree with the key in the
    columns that both have. The first few of them are explained down to the rows of the logs, as they are now.

    Raises:
        ReadError: nothing is published, no section has these columns, or no row has this key.
    """
    publication, sections = read_publication(lake, report.name), read_report(lake, report.name)
    if publication is None or sections is None:
        raise ReadError(
            f"report {report.name!r} is not published yet in the lake {lake.root!r}.",
            f"Run `tidemark report {report.name}`.",
            report=report.name,
        )
    texts = key_as_texts(key)
    section = _section(report, sections, texts)
    rows = _chosen(report, sections[section.table], texts)
    sources = Sources(spark, lake, report.pipeline, publication.pins, publication.dimensions, report.reads)
    recomputed, why_not = _recomputed(section, sources, texts)
    published = tuple(rows.to_pylist())
    of = {name: published[0][name] for name in texts}
    inputs, unread = list[InputRow](), list[str]()
    for operator in report.operators:
        found, note = _results(sources, operator, of)
        inputs += found
        unread += [note] * bool(note)
    agrees, said = compared(published, Evidence(tuple(inputs), recomputed, why_not=why_not))
    upstream, notes = _explained(spark, lake, report, tuple(inputs))
    return Why(
        report.pipeline.name,
        section.table,
        "report",
        "current",
        of,
        agrees,
        said,
        published,
        recomputed or (),
        tuple(inputs),
        rules={expectation.name: expectation.meaning for expectation in section.suite(sources).expectations},
        versions=_versions(publication, section),
        verdicts=tuple(_verdicts(lake, publication)),
        upstream=upstream,
        notes=(*publication.footnotes, *unread, *notes),
    )


def _section(report: Report, sections: Mapping[str, pa.Table], key: Mapping[str, str | None]) -> Section:
    for section in report.sections:
        if {*key} <= {*sections[section.table].column_names}:
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
        table = section.rows(sources).toArrow()
    except (PySparkException, DeltaError) as error:
        return None, f"the versions that it was made from cannot be read any more: {str(error).splitlines()[0]}"
    return tuple(rows_of_key(StoredRows(table, tuple(table.column_names)), key).to_pylist()), ""


def _results(sources: Sources, operator: Operator, key: Mapping[str, Any]) -> tuple[list[InputRow], str]:
    """The results of an operator, as they were pinned, that agree with the key in the columns that both have.

    With a note where these are not all.
    """
    try:
        frame = sources.current(operator)
        rows = _agreeing(frame, key).limit(MOST_READ + 1).toArrow().to_pylist()
    except (PySparkException, DeltaError) as error:
        return [], f"the results of {operator.name} that it was made from cannot be read: {str(error).splitlines()[0]}"
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


def _agreeing(frame: DataFrame, key: Mapping[str, Any]) -> DataFrame:
    for name, value in key.items():
        if name in frame.columns:
            frame = frame.where(
                F.col(f"`{name}`").eqNullSafe(literal(value) if hasattr(value, "hour") else F.lit(value))
            )
        elif isinstance(value, date) and name == DAY.strip("_") and DAY in frame.columns:
            frame = frame.where(F.col(DAY) == F.lit(value))
    return frame


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
            notes.append(_gone(row))
            continue
        except OperatorError as refused:
            notes.append(str(refused))
            continue
        if not answer.published:
            notes.append(_gone(row))
        elif dict(row.values) not in [dict(each) for each in answer.published]:
            notes.append(f"{row.stream} {row.place} has changed since the report was published")
        answers.append(answer)
    left = len(inputs) - MOST
    if left > 0:
        last = inputs[MOST]
        notes.append(f"{counted(left, 'more result')}, such as: tidemark why {last.stream} {last.place}")
    return tuple(answers), tuple(notes)


def _gone(row: InputRow) -> str:
    return f"{row.stream} {row.place} is not current any more: publish the report again"


def _versions(publication: Publication, section: Section) -> dict[str, Any]:
    import pyspark

    pinned = {pin.table: pin.version for pin in (*publication.pins.tables, *publication.dimensions.values())}
    return {
        "tidemark": RELEASE,
        "spark": pyspark.__version__,
        "run": publication.run_id,
        "published_at": publication.published_at.isoformat(),
        "tables": {f"reports/{section.table}": publication.versions[section.table], **pinned},
    }


def _verdicts(lake: Lake, publication: Publication) -> Iterator[Verdict]:
    judged = [(pin.table, pin.version) for pin in (*publication.pins.tables, *publication.dimensions.values())]
    judged += [(f"reports/{table}", version) for table, version in publication.versions.items()]
    for table, version in judged:
        for verdict in verdicts_for(lake, table, version).values():
            yield Verdict(table, version, verdict.expectation, verdict.outcome, verdict.observed, verdict.judged_at)
