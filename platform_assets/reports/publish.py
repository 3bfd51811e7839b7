"""Publishing: through the gate on the very versions that are reported, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
from pyspark.sql import SparkSession

from platform_assets.reports.errors import NothingToReport
from platform_assets.reports.files import as_csv, as_png, put
from platform_assets.reports.publication import (
    Publication,
    digest,
    outdated_files,
    put_publication,
    read_publication,
)
from platform_assets.reports.report import Report, Section
from platform_assets.reports.sources import Sources
from quality import (
    GateClosed,
    Pins,
    Reason,
    Subject,
    Verdict,
    judge,
    judge_frame,
    open_gate,
    pin,
    reasons_of,
)
from quality.tables import table_id, table_name, write_rows
from streaming.base import utc_now
from streaming.lake import Lake
from streaming.tables import delta


@dataclass(frozen=True)
class Published:
    """What was published: Delta version, rows and CSV per section by table name (`on_time_performance`), and the chart.

    `verdicts` are those on the sections, `pins` the versions that were read, `footnotes` what a reader must know.
    """

    report: str
    run_id: str
    pins: Pins
    versions: Mapping[str, int]
    tables: Mapping[str, pa.Table]
    csv: Mapping[str, str]
    png: str | None
    verdicts: tuple[Verdict, ...]
    footnotes: tuple[str, ...]


def judge_and_publish(
    spark: SparkSession, lake: Lake, report: Report, run_id: str, now: Callable[[], datetime] = utc_now
) -> Published:
    """Pin the newest versions, judge them, and publish what passes the gate.

    Raises:
        NotBuiltYet: there is no data yet.
        GateClosed, NothingToReport: as `publish`.
    """
    pins = pin(lake, report.pipeline)
    judge(spark, lake, report.pipeline, pins, run_id, now)
    return publish(spark, lake, report, pins, run_id, now)


def publish(
    spark: SparkSession, lake: Lake, report: Report, pins: Pins, run_id: str, now: Callable[[], datetime] = utc_now
) -> Published:
    """Compute the report from the pinned versions and put it in place of the one before.

    Every section is computed, judged and drawn before the first is written. The report is what its publication says,
    which is put in place last and in one step; whatever stops it before that leaves the report before it as it was.

    Raises:
        GateClosed: a pinned version or the computed report is not known to be good.
        NothingToReport: no window is closed yet.
    """
    open_gate(spark, lake, report.pipeline, pins)
    sources = Sources(spark, report.pipeline, pins)
    tables = {section.table: section.rows(sources).toArrow() for section in report.sections}
    if not tables[report.name].num_rows:
        raise NothingToReport(
            f"report {report.name!r} has no rows at versions {pins.versions()}: no window is closed yet. Bring more "
            f"data, or close what is open with `tidemark run {report.pipeline.name} --end-of-input`."
        )
    verdicts = _judge_sections(lake, report, sources, tables, run_id, now)
    files = {f"{name}.csv": as_csv(table) for name, table in tables.items()}
    chart = None if report.chart is None else f"{report.name}.png"
    if report.chart is not None and chart is not None:
        files[chart] = as_png(report.chart(tables))

    metadata = {"report": report.name, "run_id": run_id, "pins": pins.to_json(), "footnotes": list(sources.footnotes)}
    versions = {
        section.table: write_rows(
            lake.report(section.table),
            tables[section.table],
            "overwrite",
            metadata=metadata,
            description=section.description,
        )
        for section in report.sections
    }
    digests = {name: digest(content) for name, content in files.items()}
    put_publication(lake, Publication(report.name, run_id, now(), pins, versions, sources.footnotes, digests))
    for name, content in files.items():
        put(spark, lake.path("reports", name), content)
    return Published(
        report.name,
        run_id,
        pins,
        versions,
        tables,
        {name: lake.path("reports", f"{name}.csv") for name in tables},
        None if chart is None else lake.path("reports", chart),
        tuple(verdicts),
        sources.footnotes,
    )


def is_up_to_date(lake: Lake, report: Report, pins: Pins) -> bool:
    """Whether exactly these versions are published, and CSV and chart with them; then there is nothing to publish."""
    publication = read_publication(lake, report.name)
    return publication is not None and publication.pins == pins and not outdated_files(lake, publication)


def _judge_sections(
    lake: Lake,
    report: Report,
    sources: Sources,
    tables: Mapping[str, pa.Table],
    run_id: str,
    now: Callable[[], datetime],
) -> list[Verdict]:
    verdicts: list[Verdict] = []
    reasons: list[Reason] = []
    for section in report.sections:
        subject = _next_version(lake, section)
        suite = section.suite(sources)
        rows = tables[section.table]
        # The very rows that will be written, not a second run of the query.
        found = judge_frame(
            lambda rows=rows: sources.spark.createDataFrame(rows),  # type: ignore[misc]
            lake,
            subject,
            suite,
            run_id,
            now,
        )
        verdicts += found
        reasons += reasons_of(suite, subject, {verdict.expectation: verdict for verdict in found})
    if reasons:
        raise GateClosed(reasons, "Nothing was published; the report before this one stays as it was.")
    return verdicts


def _next_version(lake: Lake, section: Section) -> Subject:
    uri = lake.report(section.table)
    table = delta.open_table(uri)
    name = table_name(lake, uri)
    return Subject(name, "", 0) if table is None else Subject(name, table_id(table), table.version() + 1)
