"""Asset checks: one per expectation of the quality suites, each saying what its verdict on an exact version is."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import dagster as dg
from pyspark.sql import SparkSession

from platform_assets.events.evaluations import evaluations_of, last_evaluation
from platform_assets.keys import dagster_name, log_key, table_key
from platform_assets.resources import LakeResource, SparkResource
from quality import (
    Expectation,
    Suite,
    Verdict,
    judge_once,
    judged_tables,
    pin,
    role_of_log,
    suites_for,
    verdicts_for,
)
from streaming import Lake, Pipeline
from streaming.base import NotBuiltYet
from streaming.tables import delta

Judged = Mapping[str, dg.AssetCheckResult]

_NOT_DUE = "nothing to check: no row has called for it yet"


def roles(pipeline: Pipeline) -> dict[str, dg.AssetKey]:
    """The judged tables of a pipeline: their role in the quality room and their asset."""
    logs = {role_of_log(pipeline, stream): log_key(stream) for stream in pipeline.logs}
    results = {role: table_key(operator, table.suffix) for role, (operator, table) in judged_tables(pipeline).items()}
    return logs | results


def table_checks(pipeline: Pipeline, role: str, key: dg.AssetKey, suite: Suite) -> dg.AssetChecksDefinition:
    """The checks of one table of the pipeline; `role` is its name among the pipeline's pins."""

    @dg.multi_asset_check(name=dagster_name("checks", *key.path), specs=check_specs(key, suite), can_subset=True)
    def run(
        context: dg.AssetCheckExecutionContext, lake: LakeResource, spark: SparkResource
    ) -> Iterator[dg.AssetCheckResult]:
        run_id = context.op_execution_context.run_id
        results = check_table(pipeline, role, key, suite, lake.lake, lambda: spark.spark_session, run_id)
        for selected in sorted(context.selected_asset_check_keys):
            # A blocking check without a result would let everything pass.
            yield results[selected.name]

    return run


def check_specs(key: dg.AssetKey, suite: Suite) -> Sequence[dg.AssetCheckSpec]:
    """One blocking check for each expectation."""
    return [
        dg.AssetCheckSpec(expectation.name, asset=key, blocking=True, description=expectation.meaning)
        for expectation in suite.expectations
    ]


def check_table(
    pipeline: Pipeline,
    role: str,
    key: dg.AssetKey,
    suite: Suite,
    lake: Lake,
    spark: Callable[[], SparkSession],
    run_id: str,
) -> Judged:
    """A result for every expectation of the suite, by name, on the table's newest version.

    Verdicts that are stored for exactly this version and definition are not computed again.
    """
    try:
        pinned = pin(lake, pipeline).pin(role)
    except NotBuiltYet as error:
        return _for_all(suite, key, passed=False, description=f"could not run: {error}")
    if pinned is None:
        return _for_all(suite, key, passed=True, description=_NOT_DUE)
    return results_of(suite, key, judge_once(spark, lake, pinned, suite, run_id))


def report_not_due(instance: dg.DagsterInstance, lake: Lake, pipeline: Pipeline) -> None:
    """Pass the checks that nothing has made due yet, once: those of a table that no row has called for.

    Otherwise they would count as missing for as long as no row comes late.
    """
    suites = suites_for(pipeline)
    for role, (operator, table) in judged_tables(pipeline).items():
        if table.suffix and not delta.exists(lake.table(operator, table.suffix)):
            key = table_key(operator, table.suffix)
            unasked = [one for one in check_specs(key, suites[role]) if last_evaluation(instance, one.key) is None]
            passed = _for_all(suites[role], key, passed=True, description=_NOT_DUE)
            for evaluation in evaluations_of(passed[one.name] for one in unasked):
                instance.report_runless_asset_event(evaluation)


def report_verdicts(instance: dg.DagsterInstance, lake: Lake, pipeline: Pipeline) -> None:
    """Evaluate the checks of which a verdict on the newest version is stored that the instance was not told of."""
    try:
        pins = pin(lake, pipeline)
    except NotBuiltYet:
        return
    suites, places = suites_for(pipeline), roles(pipeline)
    for pinned in (each for each in pins.tables if each.role in suites.keys() & places.keys()):
        stored = verdicts_for(lake, pinned.table, pinned.version)
        results = results_of(suites[pinned.role], places[pinned.role], stored)
        for evaluation in evaluations_of(result for name, result in results.items() if name in stored):
            last_check = last_evaluation(instance, evaluation.asset_check_key)
            if last_check is None or last_check.metadata.get("judged_at") != evaluation.metadata["judged_at"]:
                instance.report_runless_asset_event(evaluation)


def results_of(suite: Suite, key: dg.AssetKey, verdicts: Mapping[str, Verdict]) -> Judged:
    """The verdicts as check results: anything but `passed` is an error, but for what the level makes a warning.

    What could not be computed is an error at either level.
    """
    return {e.name: _result(e, key, verdicts.get(e.name)) for e in suite.expectations}


def _result(expectation: Expectation, key: dg.AssetKey, verdict: Verdict | None) -> dg.AssetCheckResult:
    if verdict is None:
        description = "could not run: no verdict was stored"
    elif verdict.outcome == "could_not_run":
        description = f"could not run: {verdict.observed}"
    else:
        description = f"{verdict.outcome}: {verdict.observed}"
    metadata: dict[str, Any] = {}
    if verdict is not None:
        metadata = {
            "outcome": verdict.outcome,
            "observed": verdict.observed,
            "table": verdict.table,
            "delta_version": str(verdict.version),
            "judged_at": dg.MetadataValue.timestamp(verdict.judged_at),
            # A number beside the words: Dagster plots numbers only.
            **({} if verdict.value is None else {"observed_value": _number(verdict.value)}),
        }
    warns = expectation.level == "warn" and verdict is not None and verdict.outcome == "failed"
    return dg.AssetCheckResult(
        asset_key=key,
        check_name=expectation.name,
        passed=verdict is not None and verdict.outcome == "passed",
        severity=dg.AssetCheckSeverity.WARN if warns else dg.AssetCheckSeverity.ERROR,
        description=description,
        metadata=metadata,
    )


def _number(value: float) -> int | float:
    return int(value) if value.is_integer() else value


def _for_all(suite: Suite, key: dg.AssetKey, *, passed: bool, description: str) -> Judged:
    return {
        expectation.name: dg.AssetCheckResult(
            asset_key=key,
            check_name=expectation.name,
            passed=passed,
            severity=dg.AssetCheckSeverity.ERROR,
            description=description,
        )
        for expectation in suite.expectations
    }
