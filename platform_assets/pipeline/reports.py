"""Reports as assets: published through the gate on pinned versions, or not at all."""

import logging
from collections.abc import Iterator
from typing import Any

import dagster as dg

from platform_assets import keys
from platform_assets.events.backlog import settled_through
from platform_assets.events.files import chart_metadata, file_links
from platform_assets.events.metadata import table_metadata
from platform_assets.lineage import lineage_metadata, lineage_of_report, origins_in_words
from platform_assets.pipeline.checks import check_specs, results_of
from platform_assets.reports.lineage import columns_read
from platform_assets.reports.publication import read_publication
from platform_assets.reports.publish import Published, publish
from platform_assets.reports.report import Report, Section
from platform_assets.reports.sources import Sources
from platform_assets.resources import LakeResource, SparkResource
from platform_assets.specs import asset_spec
from platform_assets.tags import LAYER_TAG
from quality import GateClosed, Pins, Suite, judge_missing, pin, verdicts_for
from quality.verdicts import table_name
from streaming import Lake, Stream
from streaming.base import utc_now
from streaming.service import look
from streaming.tables import storage

_log = logging.getLogger("tidemark")


def report_asset(report: Report) -> dg.AssetsDefinition:
    """The sections of a report in one step: they are published together or not at all.

    Blocking checks guard within one run only, so the step itself asks the gate about exactly what it reads.
    """
    specs = [
        asset_spec(
            report.pipeline,
            keys.report_key(section.table),
            "reports",
            section.description,
            {"delta", *section.files},
            [
                *(key for operator in report.operators for key in keys.current_keys(operator)),
                *(keys.log_key(stream) for stream in report.reads if isinstance(stream, Stream)),
                *(keys.dimension_key(dimension.name) for dimension in report.dimensions),
            ],
            why=report.name,
            # Which columns its sections have is known once they are published.
            explained_by=("COLUMN",),
        )
        for section in report.sections
    ]

    @dg.multi_asset(name=keys.dagster_name("publish", report.name), specs=specs, can_subset=False)
    def run(
        context: dg.AssetExecutionContext, lake: LakeResource, spark: SparkResource
    ) -> Iterator[dg.MaterializeResult]:
        where, session = lake.lake, spark.spark_session
        pins = reported_pins(context.instance, where, report)
        context.log.info(f"pinned versions: {pins.versions()}")
        try:
            judge_missing(session, where, report.pipeline, pins, context.run.run_id, report.reads)
            published = publish(session, where, report, pins, context.run.run_id, utc_now)
        except GateClosed as closed:
            first = closed.reasons[0]
            raise dg.Failure(
                str(closed),
                metadata={
                    "gate/why": first.why,
                    "gate/table": first.table,
                    "gate/version": str(first.version),
                    "gate/expectation": str(first.expectation),
                    "gate/observed": str(first.observed),
                    "gate/reasons": len(closed.reasons),
                },
                allow_retries=False,
            ) from closed
        for name, pinned in published.dimensions.items():
            # The report's page leads from here to the very version that it was made of.
            context.log_event(
                dg.AssetObservation(
                    keys.dimension_key(name),
                    metadata={"delta_version": pinned.version, **table_metadata(pinned.uri)},
                    tags={"dagster/data_version": f"{pinned.table_id}/{pinned.version}"},
                )
            )
        for section in report.sections:
            yield dg.MaterializeResult(
                asset_key=keys.report_key(section.table),
                metadata={
                    **_shown(context, section, published),
                    **_table_metadata(where, section, report, published),
                    **_metadata(section, published),
                },
            )

    return run


def dimension_assets(report: Report) -> list[dg.AssetSpec]:
    """The dimensions of a report: assets that somebody else keeps."""
    return [
        dg.AssetSpec(
            keys.dimension_key(dimension.name),
            group_name="dimensions",
            tags={LAYER_TAG: "source"},
            description=f"{dimension.path}, one row per {', '.join(dimension.key)}.",
            kinds={dimension.format, "source"},
        )
        for dimension in report.dimensions
    ]


def reported_pins(instance: dg.DagsterInstance, lake: Lake, report: Report) -> Pins:
    """The versions that the report is made of now.

    While the stream runs, late pairs may have come a moment ago: the newest batch that is settled counts.

    Raises:
        NotBuiltYet: there is no data yet.
    """
    pipeline = report.pipeline
    through = settled_through(instance, pipeline) if look(lake, pipeline).running else None
    return pin(lake, pipeline, through, report.reads)


def report_checks(section: Section, report: Report) -> dg.AssetChecksDefinition:
    """The verdicts on the published version of a section, which were given before it was published."""
    key = keys.report_key(section.table)
    suite = _suite(section, report)

    @dg.multi_asset_check(name=keys.dagster_name("checks", *key.path), specs=check_specs(key, suite), can_subset=True)
    def run(context: dg.AssetCheckExecutionContext, lake: LakeResource) -> Iterator[dg.AssetCheckResult]:
        uri = lake.lake.report(section.table)
        publication = read_publication(lake.lake, report.name)
        version = None if publication is None else publication.versions.get(section.table)
        verdicts = {} if version is None else verdicts_for(lake.lake, table_name(lake.lake, uri), version)
        results = results_of(suite, key, verdicts)
        for selected in sorted(context.selected_asset_check_keys):
            yield results[selected.name]

    return run


class _Undated(Sources):
    """Sources before there are any: enough for a suite to name its expectations, which never depend on the data."""

    finished_days = ()


def _suite(section: Section, report: Report) -> Suite:
    return section.suite(_Undated(None, None, report.pipeline, Pins(report.pipeline.name, ()), {}, report.reads))  # type: ignore[arg-type]


def _table_metadata(lake: Lake, section: Section, report: Report, published: Published) -> dict[str, Any]:
    """The metadata of a section that is written, with what each of its columns was computed from."""
    metadata = table_metadata(lake.report(section.table))
    try:
        read = columns_read(published.frames[section.table])
    # The report is published by now: a plan that cannot be followed leaves out its lineage, and fails nothing.
    except Exception:
        _log.exception("%s: its columns could not be followed to what they are computed from", section.table)
        read = {}
    lineage = lineage_of_report(lake, report.pipeline, read, published.dimensions)
    columns = [
        dg.TableColumn(column.name, column.type, origins_in_words(lineage.get(column.name, ())) or None)
        for column in metadata["dagster/column_schema"].columns
    ]
    return {**metadata, "dagster/column_schema": dg.TableSchema(columns), **lineage_metadata(lineage)}


def _metadata(section: Section, published: Published) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        **{path.rpartition(".")[2]: dg.MetadataValue.path(path) for path in published.files[section.table]},
        "pinned_versions": dg.MetadataValue.json(published.pins.versions()),
    }
    if published.dimensions:
        versions = {name: pinned.version for name, pinned in published.dimensions.items()}
        metadata["pinned_dimensions"] = dg.MetadataValue.json(versions)
    if published.footnotes:
        metadata["footnotes"] = dg.MetadataValue.md("\n".join(f"- {note}" for note in published.footnotes))
    return metadata


def _shown(context: dg.AssetExecutionContext, section: Section, published: Published) -> dict[str, Any]:
    """Links to the files of the section, and the chart where it is the first one."""
    places = [*published.files[section.table]]
    if published.png is not None and section.table == published.report:
        places.append(published.png)
    contents = {place.rpartition("/")[2]: storage.read_bytes(place) for place in places}
    files = {name: content for name, content in contents.items() if content is not None}
    charts = [name for name in files if name.endswith(".png")]
    shown: dict[str, Any] = {}
    for name in charts:
        shown |= chart_metadata(context.instance, context.run.run_id, name, files[name])
    return shown | file_links(context.instance, context.run.run_id, files)
