"""Publishing: through the gate on the very versions that are reported, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from platform_assets.reports.errors import NewerIsPublished, NothingToReport
from platform_assets.reports.files import FileFormat, as_csv, as_html, as_parquet, as_png, put, with_decimals
from platform_assets.reports.landed import land_dimension, newest_pin
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
    Pin,
    Pins,
    Reason,
    Subject,
    Verdict,
    judge,
    judge_frame,
    judge_table,
    open_gate,
    pin,
    reasons_of,
    warnings_of,
    warnings_on,
)
from quality.verdicts import table_id, table_name, write_rows
from streaming.base import told, utc_now
from streaming.lake import Lake
from streaming.service import LeasePlace, take_lease
from streaming.spark import frame_of_arrow
from streaming.tables import delta

_WAITS_FOR_ANOTHER = 60.0


@dataclass(frozen=True)
class Published:
    """The outcome of publishing: version, rows and files per section by table (`on_time_performance`), and the chart.

    `frames` are the queries that computed the rows, `verdicts` those on the sections, `pins` and `dimensions` the
    versions that were read, `footnotes` what a reader must know, `warnings` the expectations that are not met of those
    that let pass.
    """

    report: str
    run_id: str
    pins: Pins
    versions: Mapping[str, int]
    frames: Mapping[str, DataFrame]
    tables: Mapping[str, pa.Table]
    files: Mapping[str, tuple[str, ...]]
    png: str | None
    verdicts: tuple[Verdict, ...]
    footnotes: tuple[str, ...]
    dimensions: Mapping[str, Pin]
    warnings: tuple[Reason, ...] = ()


def judge_and_publish(
    spark: SparkSession, lake: Lake, report: Report, run_id: str, now: Callable[[], datetime] = utc_now
) -> Published:
    """Pin the newest versions, judge them, and publish what passes the gate.

    Raises:
        NotBuiltYet: there is no data yet.
        GateClosed, NothingToReport: as `publish`.
    """
    pins = pin(lake, report.pipeline, reads=report.reads)
    judge(spark, lake, report.pipeline, pins, run_id, now, report.reads)
    return publish(spark, lake, report, pins, run_id, now)


def sources_as_of(spark: SparkSession, lake: Lake, report: Report) -> Sources:
    """The sources of a report from a lake with a cut: nothing is judged, and nothing may be published of them.

    Raises:
        NotBuiltYet: there was no data yet.
    """
    dimensions = {dimension.name: land_dimension(lake, dimension) for dimension in report.dimensions}
    pins = pin(lake, report.pipeline, reads=report.reads)
    return Sources(spark, lake, report.pipeline, pins, dimensions, report.reads)


def publish(
    spark: SparkSession, lake: Lake, report: Report, pins: Pins, run_id: str, now: Callable[[], datetime] = utc_now
) -> Published:
    """Compute the report from the pinned versions and put it in place of the one before.

    Every section is computed, judged and drawn before the first is written. The report is what its publication says,
    which is put in place last and in one step; whatever stops it before that leaves the report before it as it was.
    Publications of one report come one after the other, so that verdicts are on the very version that is written.

    Raises:
        GateClosed: a pinned version or the computed report is not known to be good.
        NothingToReport: no window is closed yet.
        DimensionError: a dimension is not there, or not what is declared.
        NewerIsPublished: it is published from newer versions than the pinned ones.
        LeaseError: another process publishes it, and does not end.
    """
    place = LeasePlace(f"{report.pipeline.name}/reports/{report.name}")
    with take_lease(lake, place, "report", wait=_WAITS_FOR_ANOTHER):
        before = read_publication(lake, report.name)
        if before is not None and pins.are_older_than(before.pins):
            raise NewerIsPublished(
                f"report {report.name!r} is published from newer versions than {pins.versions()}, by run "
                f"{before.run_id} at {told(before.published_at)}. It stays as it is.",
                f"`tidemark report {report.name}` publishes what is current now.",
                report=report.name,
            )
        return _publish(spark, lake, report, pins, run_id, now)


def _publish(
    spark: SparkSession, lake: Lake, report: Report, pins: Pins, run_id: str, now: Callable[[], datetime]
) -> Published:
    open_gate(spark, lake, report.pipeline, pins, reads=report.reads)
    dimensions = {dimension.name: land_dimension(lake, dimension) for dimension in report.dimensions}
    warnings = [*warnings_on(lake, report.pipeline, pins, report.reads)]
    warnings += _judge_dimensions(spark, lake, report, dimensions, run_id, now)
    sources = Sources(spark, lake, report.pipeline, pins, dimensions, report.reads)
    frames = {section.table: section.rows(sources) for section in report.sections}
    tables = {name: frame.toArrow() for name, frame in frames.items()}
    if not tables[report.name].num_rows:
        raise NothingToReport(
            f"report {report.name!r} has no rows at versions {pins.versions()}: no window is closed yet.",
            f"Bring more data, or close what is open with `tidemark run {report.pipeline.name} --end-of-input`.",
            report=report.name,
        )
    verdicts, of_sections = _judge_sections(lake, report, sources, tables, run_id, now)
    chart = None if report.chart is None else f"{report.name}.png"
    files = {
        section.table: _files(section, tables[section.table], sources.footnotes, chart) for section in report.sections
    }
    contents = {name: content for of_section in files.values() for name, content in of_section.items()}
    if report.chart is not None and chart is not None:
        contents[chart] = as_png(report.chart(tables))

    metadata = {
        "report": report.name,
        "run_id": run_id,
        "pins": pins.to_json(),
        "dimensions": {name: pin.version for name, pin in dimensions.items()},
        "footnotes": list(sources.footnotes),
    }
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
    digests = {name: digest(content) for name, content in contents.items()}
    put_publication(
        lake, Publication(report.name, run_id, now(), pins, versions, sources.footnotes, digests, dimensions)
    )
    for name, content in contents.items():
        put(spark, lake.path("reports", name), content)
    return Published(
        report.name,
        run_id,
        pins,
        versions,
        frames,
        tables,
        {table: tuple(lake.path("reports", name) for name in of_section) for table, of_section in files.items()},
        None if chart is None else lake.path("reports", chart),
        tuple(verdicts),
        sources.footnotes,
        dimensions,
        (*warnings, *of_sections),
    )


def is_up_to_date(lake: Lake, report: Report, pins: Pins) -> bool:
    """True if exactly these versions are published, and what lies beside them, or newer ones.

    Then there is nothing to publish.
    """
    publication = read_publication(lake, report.name)
    if publication is not None and pins.are_older_than(publication.pins):
        return True
    if publication is None or publication.pins != pins:
        return False
    dimensions = {dimension.name: newest_pin(lake, dimension) for dimension in report.dimensions}
    return publication.dimensions == dimensions and not outdated_files(lake, publication)


def _files(section: Section, table: pa.Table, footnotes: Sequence[str], chart: str | None) -> dict[str, bytes]:
    """The files beside a section's table, by their names."""
    shown = with_decimals(table, section.decimals)
    written: dict[FileFormat, Callable[[], bytes]] = {
        "csv": lambda: as_csv(shown),
        "parquet": lambda: as_parquet(table),
        "html": lambda: as_html(shown, section.description, footnotes, chart),
    }
    return {f"{section.table}.{format}": written[format]() for format in section.files}


def _judge_dimensions(
    spark: SparkSession,
    lake: Lake,
    report: Report,
    pins: Mapping[str, Pin],
    run_id: str,
    now: Callable[[], datetime],
) -> list[Reason]:
    """The warnings on the dimensions; raises where the gate is closed to one."""
    reasons: list[Reason] = []
    warnings: list[Reason] = []
    for dimension in report.dimensions:
        pin = pins[dimension.name]
        judged = {each.expectation: each for each in judge_table(spark, lake, pin, dimension.suite, run_id, now)}
        reasons += reasons_of(dimension.suite, pin.subject, judged)
        warnings += warnings_of(dimension.suite, pin.subject, judged)
    if reasons:
        raise GateClosed(reasons, "Nothing was published. Correct the dimension at its place, or its expectations.")
    return warnings


def _judge_sections(
    lake: Lake,
    report: Report,
    sources: Sources,
    tables: Mapping[str, pa.Table],
    run_id: str,
    now: Callable[[], datetime],
) -> tuple[list[Verdict], list[Reason]]:
    """The verdicts on the sections, and the warnings among them; raises where the gate is closed to one."""
    verdicts: list[Verdict] = []
    reasons: list[Reason] = []
    warnings: list[Reason] = []
    for section in report.sections:
        subject = _next_version(lake, section)
        suite = section.suite(sources)
        rows = tables[section.table]
        # The very rows that will be written, not a second run of the query.
        section_verdicts = judge_frame(
            lambda rows=rows: frame_of_arrow(sources.spark, rows),  # type: ignore[misc]
            lake,
            subject,
            suite,
            run_id,
            now,
        )
        verdicts += section_verdicts
        judged = {verdict.expectation: verdict for verdict in section_verdicts}
        reasons += reasons_of(suite, subject, judged)
        warnings += warnings_of(suite, subject, judged)
    if reasons:
        raise GateClosed(reasons, "Nothing was published; the report before this one stays as it was.")
    return verdicts, warnings


def _next_version(lake: Lake, section: Section) -> Subject:
    uri = lake.report(section.table)
    table = delta.open_table(uri)
    name = table_name(lake, uri)
    return Subject(name, "", 0) if table is None else Subject(name, table_id(table), table.version() + 1)
