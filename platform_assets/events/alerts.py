"""Alerts on running streams: asset checks of the event log, kept true by a sensor, and sent on where one listens."""

# Not with postponed annotations: dagster reads those of checks and sensors when they are declared.
import json
from collections.abc import Iterator, Sequence
from datetime import datetime

import dagster as dg
import httpx

from platform_assets import keys
from platform_assets.errors import AlertNotSent
from platform_assets.events.evaluations import last_evaluation
from platform_assets.resources import LakeResource
from streaming import Pipeline
from streaming.base import host_of, utc_now
from streaming.service import ALERTS, AlertStatus, Overview, evaluate, look

_SENT_WITHIN_SECONDS = 10


def alert_checks(pipeline: Pipeline) -> dg.AssetChecksDefinition:
    """One check per alert on the pipeline's log; executed, they judge the stream as it is now."""
    key = keys.log_key(pipeline.stream)

    @dg.multi_asset_check(
        name=keys.dagster_name("alerts", pipeline.name),
        specs=[dg.AssetCheckSpec(name, asset=key, description=meaning) for name, meaning in ALERTS.items()],
        can_subset=True,
    )
    def check(context: dg.AssetCheckExecutionContext, lake: LakeResource) -> Iterator[dg.AssetCheckResult]:
        selected = {entry.name for entry in context.selected_asset_check_keys}
        for verdict in evaluate(look(lake.lake, pipeline), pipeline.limits, utc_now()):
            if verdict.name in selected:
                yield dg.AssetCheckResult(
                    asset_key=key,
                    check_name=verdict.name,
                    passed=verdict.passed,
                    severity=_severity(verdict),
                    description=verdict.text,
                    metadata=verdict.numbers,
                )

    return check


def alert_sensor(pipeline: Pipeline) -> dg.SensorDefinition:
    """Judges a stream twice a minute; an alert that is raised or over becomes an event of the log's asset."""

    @dg.sensor(
        name=keys.dagster_name("alerts", pipeline.name),
        minimum_interval_seconds=30,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Failed stream, standing watermark, rejected rows, growing backlog of {pipeline.name}.",
    )
    def watch(context: dg.SensorEvaluationContext, lake: LakeResource) -> dg.SkipReason:
        overview, now = look(lake.lake, pipeline), utc_now()
        if overview.since is None:
            return dg.SkipReason(f"{pipeline.name} was never started")
        report_alerts(context.instance, overview, now)
        # Remembered here and not by the events, which the run of the stream reports, too.
        raised_before: list[str] = json.loads(context.cursor or "[]")
        verdicts = list(evaluate(overview, pipeline.limits, now))
        for verdict in verdicts:
            if verdict.passed != (verdict.name in raised_before):
                continue
            write = context.log.info if verdict.passed else context.log.error
            write(f"{pipeline.name}: {verdict.name}: {verdict.text}")
            if lake.settings.alerts_to:
                send(lake.settings.alerts_to, pipeline, verdict)
        raised = [verdict.name for verdict in verdicts if not verdict.passed]
        context.update_cursor(json.dumps(raised))
        return dg.SkipReason(f"raised: {', '.join(raised)}" if raised else f"{pipeline.name} is {overview.state}")

    return watch


def report_alerts(instance: dg.DagsterInstance, overview: Overview, now: datetime) -> Sequence[AlertStatus]:
    """Report the alerts whose verdict is not the one that was reported last, or that never had one; returns these."""
    key = keys.log_key(overview.pipeline.stream)
    changed = []
    for verdict in evaluate(overview, overview.pipeline.limits, now):
        reported = last_evaluation(instance, dg.AssetCheckKey(key, verdict.name))
        if reported is not None and reported.passed == verdict.passed:
            continue
        changed.append(verdict)
        instance.report_runless_asset_event(
            dg.AssetCheckEvaluation(
                asset_key=key,
                check_name=verdict.name,
                passed=verdict.passed,
                severity=_severity(verdict),
                description=verdict.text,
                metadata=verdict.numbers,
            )
        )
    return changed


def send(url: str, pipeline: Pipeline, verdict: AlertStatus) -> None:
    """Post the alert as JSON: `text`, as chats read it, and its parts; `asset` is its page, relative to the UI.

    Raises:
        AlertNotSent: it was not taken; the sensor's tick fails, says so, and the next one tries again.
    """
    asset = f"/assets/{'/'.join(keys.log_key(pipeline.stream).path)}"
    change = "is over" if verdict.passed else "is raised"
    body = {
        "text": f"{pipeline.name}: alert {verdict.name} {change}: {verdict.text} ({asset})",
        "pipeline": pipeline.name,
        "alert": verdict.name,
        "raised": not verdict.passed,
        "asset": asset,
    }
    try:
        status = httpx.post(url, json=body, timeout=_SENT_WITHIN_SECONDS).status_code
    except httpx.HTTPError as error:
        # Without the cause, whose text has the whole URL: what is behind the host lets anybody post to a chat.
        raise _not_sent(url, f"cannot be reached ({type(error).__name__})") from None
    if not httpx.codes.is_success(status):
        raise _not_sent(url, f"answers {status}")


def _not_sent(url: str, why: str) -> AlertNotSent:
    return AlertNotSent(f"the alert was not sent: {host_of(url)} {why}", "correct TIDEMARK_ALERTS_TO, or wait for it.")


def _severity(verdict: AlertStatus) -> dg.AssetCheckSeverity:
    return dg.AssetCheckSeverity.ERROR if verdict.name == "stream_is_up" else dg.AssetCheckSeverity.WARN
