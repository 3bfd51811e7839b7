"""Deliveries as assets: what arrives in a target is told by whoever delivers, and checked by reading it back."""

# Not with postponed annotations: dagster reads those of assets and checks when they are declared.
from collections.abc import Iterator, Sequence

import dagster as dg

from platform_assets import keys
from platform_assets.events.delivered import NO_DEAD_LETTERS, dead_letters_result, delivery_metadata
from platform_assets.partitions import days_of, parse_days
from platform_assets.resources import LakeResource, SparkResource
from platform_assets.specs import asset_spec
from streaming import Delivery, Pipeline
from streaming.audit import reconcile
from streaming.base import utc_now
from streaming.declare import Operator
from streaming.deliveries import DeliveryRuntime, why_not_by_day
from streaming.operations import redeliver_days
from streaming.operators import Finding

RECONCILED = "reconciled"

_BY_DAY = "Each day of its table is a partition: materialize some, and their rows are delivered again as they stand."

_MEANINGS = {
    RECONCILED: (
        "What was sent is what the target holds: as many rows, and the same ones where they can be read back. Reads "
        "every delivered row of table and target."
    ),
    NO_DEAD_LETTERS: "The target has refused no row.",
}


def delivery_assets(pipeline: Pipeline) -> list[dg.AssetSpec | dg.AssetsDefinition]:
    """One asset for each delivery, of its target's kind, behind what it reads; by day where a day can be repeated."""
    return [_asset(pipeline, delivery) for delivery in pipeline.deliveries]


def _asset(pipeline: Pipeline, delivery: Delivery) -> dg.AssetSpec | dg.AssetsDefinition:
    spec, why_not = _spec(pipeline, delivery), why_not_by_day(delivery)
    if why_not:
        return spec.merge_attributes(metadata={"not_by_day": why_not})
    return _redelivery_asset(pipeline, delivery, spec)


def _redelivery_asset(pipeline: Pipeline, delivery: Delivery, spec: dg.AssetSpec) -> dg.AssetsDefinition:
    """The delivery of the `spec`; any range of its days is one run, and so one JVM."""
    partitioned = spec.replace_attributes(description=f"{spec.description} {_BY_DAY}", partitions_def=days_of(delivery))

    @dg.multi_asset(
        name=keys.dagster_name("backfill", delivery.folder, delivery.name),
        specs=[partitioned],
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def run(context: dg.AssetExecutionContext, lake: LakeResource, spark: SparkResource) -> dg.MaterializeResult:
        days = parse_days(context.partition_keys)
        done = redeliver_days(spark.spark_session, lake.lake, pipeline, delivery, days)
        if not done.done:
            raise dg.Failure(
                f"{', '.join(map(str, days))}: asked for, but not there yet. "
                + (f"{done.holder} delivers them." if done.holder else f"The target does not take it: {done.waiting}"),
                allow_retries=False,
            )
        return dg.MaterializeResult(metadata=delivery_metadata(DeliveryRuntime(delivery, lake.lake, utc_now)))

    return run


def _spec(pipeline: Pipeline, delivery: Delivery) -> dg.AssetSpec:
    about = f"{delivery.description} " if delivery.description else ""
    what = "Dead letters" if delivery.what == "dead" else str(delivery.what).capitalize()
    spec = asset_spec(
        pipeline,
        keys.delivery_key(delivery),
        "deliveries",
        f"{about}{what} of {delivery.of.name}, {delivery.guarantee}.",
        {delivery.to.kind},
        _read_by(delivery),
    )
    return spec.merge_attributes(metadata={"target": delivery.to.address, "guarantee": str(delivery.guarantee)})


def _read_by(delivery: Delivery) -> list[dg.AssetKey]:
    if delivery.what == "current" and isinstance(delivery.of, Operator):
        return keys.current_keys(delivery.of)
    return [keys.delivered_table_key(delivery)]


def delivery_checks(pipeline: Pipeline) -> list[dg.AssetChecksDefinition]:
    """For each delivery its reconciliation with the target, and its dead letters."""
    return [_checks(delivery) for delivery in pipeline.deliveries]


def _checks(delivery: Delivery) -> dg.AssetChecksDefinition:
    key = keys.delivery_key(delivery)

    @dg.multi_asset_check(
        name=keys.dagster_name("reconcile", *key.path),
        specs=[dg.AssetCheckSpec(name, asset=key, description=meaning) for name, meaning in _MEANINGS.items()],
        can_subset=True,
    )
    def check(
        context: dg.AssetCheckExecutionContext, lake: LakeResource, spark: SparkResource
    ) -> Iterator[dg.AssetCheckResult]:
        selected = {entry.name for entry in context.selected_asset_check_keys}
        if NO_DEAD_LETTERS in selected:
            yield dead_letters_result(key, DeliveryRuntime(delivery, lake.lake, utc_now).dead_letters.count())
        if RECONCILED in selected:
            yield _result(key, list(reconcile(spark.spark_session, lake.lake, delivery)))

    return check


def _result(key: dg.AssetKey, findings: Sequence[Finding]) -> dg.AssetCheckResult:
    broken = [finding for finding in findings if not finding.holds]
    unasked = [finding.unasked for finding in findings if finding.unasked]
    only_unasked = bool(unasked) and not broken
    compared = "; ".join(f"{finding.checked:,}: {finding.compared}" for finding in findings)
    return dg.AssetCheckResult(
        asset_key=key,
        check_name=RECONCILED,
        passed=not broken and not unasked,
        severity=dg.AssetCheckSeverity.WARN if only_unasked else dg.AssetCheckSeverity.ERROR,
        description=(
            f"could not run: {'; '.join(unasked)}"
            if only_unasked
            else " ".join(finding.advice or finding.compared for finding in broken) or compared
        ),
        metadata={
            "compared": compared,
            "rows": max((finding.checked for finding in findings), default=0),
            "broken": sum(finding.broken for finding in broken),
        },
    )


def reconciliation_schedule(pipeline: Pipeline) -> dg.ScheduleDefinition:
    """Nightly, once somebody has turned it on: it reads all that was ever delivered."""
    checked = (
        dg.AssetCheckKey(keys.delivery_key(delivery), name) for delivery in pipeline.deliveries for name in _MEANINGS
    )
    job = dg.define_asset_job(
        keys.dagster_name("reconciliation", pipeline.name),
        selection=dg.AssetSelection.checks(*checked),
        description=f"Hold what was delivered of {pipeline.name} against its targets.",
    )
    return dg.ScheduleDefinition(
        name=keys.dagster_name("reconciliation_nightly", pipeline.name),
        job=job,
        cron_schedule="15 3 * * *",
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.STOPPED,
    )
