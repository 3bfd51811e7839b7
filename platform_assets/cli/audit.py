"""`tidemark audit`: every law, recomputed from the log."""

from __future__ import annotations

from typing import Annotated

import typer

from platform_assets.cli.context import AsJson, AsOf, PipelineName, console, has_little, read_lake, spark_session
from platform_assets.cli.documents import AuditDocument
from platform_assets.cli.exit_codes import ExitCode
from platform_assets.cli.next_steps import after_audit
from platform_assets.cli.render import next_step, print_findings
from streaming.audit import audit as audit_laws
from streaming.audit import audit_deliveries
from streaming.declare import find_pipeline
from streaming.operations import recomputed


def audit(
    pipeline_name: PipelineName,
    deliveries: Annotated[
        bool,
        typer.Option(
            "--deliveries",
            help="Only the deliveries, and not only how many rows there are: reads every row of table and target.",
        ),
    ] = False,
    as_of: AsOf = None,
    as_json: AsJson = False,
) -> None:
    """Check every law by recomputing all results from the log.

    On the lake as it stands, also while its stream runs, or as it stood; exits with 3 if a law is broken.
    """
    pipeline = find_pipeline(pipeline_name)
    lake = read_lake(pipeline, as_of)
    if deliveries and as_of is not None:
        raise typer.BadParameter("--deliveries and --as-of exclude each other: a target holds what came up to now.")
    if deliveries and not pipeline.deliveries:
        raise typer.BadParameter(f"{pipeline.name} declares no delivery; `tidemark new delivery NAME` writes one.")
    with spark_session(is_short=has_little(pipeline)) as spark, recomputed(spark, lake, pipeline.operators) as there:
        findings = audit_deliveries(spark, lake, pipeline) if deliveries else audit_laws(spark, there, pipeline)
        if as_json:
            document = AuditDocument.of(lake.root, pipeline.name, list(findings))
            document.print()
            held = document.holds
        else:
            held = print_findings(console, findings)
    if not as_json and held:
        next_step(console, *after_audit(pipeline))
    elif not as_json:
        why = "looks at the rows; a broken law for which nothing is advised above is a defect: report it."
        next_step(console, f"tidemark show {pipeline_name} log", why)
    if not held:
        raise typer.Exit(ExitCode.LAW_BROKEN)
