"""When a running stream needs somebody's attention: limits as a declaration, and the judgement as a pure function."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Literal

from streaming.base import interval
from streaming.declare import Limits
from streaming.service.freshness import lateness_texts
from streaming.service.overview import Overview
from streaming.service.progress import Skew
from streaming.service.status import ProcessStatus
from streaming.sources import backlog_numbers

AlertName = Literal[
    "stream_is_up",
    "stream_watermark_moves",
    "stream_is_fresh",
    "stream_is_usual",
    "stream_rejects_few",
    "stream_backlog_shrinks",
    "stream_views_follow",
    "stream_lookups_answer",
    "stream_deliveries_arrive",
    "stream_receivers_receive",
    "stream_clocks_are_together",
]

ALERTS: dict[AlertName, str] = {
    "stream_is_up": "The stream has not failed, does not fail again and again, and its supervisor is there.",
    "stream_watermark_moves": "The watermark has moved lately, so windows close.",
    "stream_is_fresh": "Streams and views are as young as `fresh_within` says, and so is each value it names.",
    "stream_is_usual": "The last hour is as that hour of the weeks before: its rows, sums, means and shares of nulls.",
    "stream_rejects_few": "Few of the rows that came lately were rejected.",
    "stream_backlog_shrinks": "What waits in the source does not grow and grow.",
    "stream_views_follow": "Every view follows its log.",
    "stream_lookups_answer": "Every row for which an enrichment asks gets its answer.",
    "stream_deliveries_arrive": "Every target takes what is delivered to it.",
    "stream_receivers_receive": "Every receiver runs, is connected, can write what comes, and its source has lost "
    "nothing.",
    "stream_clocks_are_together": "The clocks of streams that are joined are not far apart.",
}
"""The condition that each alert watches, as it reads while all is well."""


_SHORT, _FEW = timedelta(minutes=10), 3
"""A run that is no success, and how many of them are a few too many."""


@dataclass(frozen=True)
class AlertStatus:
    """One alert's state: whether all is well, and what was seen, in words and by name in numbers."""

    name: AlertName
    passed: bool
    text: str
    numbers: Mapping[str, float] = field(default_factory=dict)


def evaluate(overview: Overview, limits: Limits, now: datetime) -> Iterator[AlertStatus]:
    """Every alert's verdict on a pipeline as it is; a stream that was ended on purpose alarms nobody."""
    process = overview.process
    lost = overview.state == "stopped" and bool(overview.why) and overview.since is not None
    if overview.state == "failed" or lost:
        last = overview.failures[-1] if overview.failures and overview.state == "failed" else None
        place = f" in {last.batch} ({last.origins})" if last is not None and last.batch else ""
        yield AlertStatus("stream_is_up", False, f"{overview.state}{place}: {overview.why}")
    elif crashes := _crashes(overview, now):
        last = overview.failures[-1]
        text = f"{overview.state}: the last {crashes} starts each failed within {_ago(_SHORT)}: {last.error}"
        yield AlertStatus("stream_is_up", False, text)
    else:
        yield AlertStatus("stream_is_up", True, overview.state)
    if process is None:
        # What nobody measures is no reason for an alarm of its own.
        for name in ALERTS:
            if name == "stream_receivers_receive":
                yield _receivers(overview, limits, now)
            elif name != "stream_is_up":
                yield AlertStatus(name, True, "no stream process runs")
        return
    moved, begun = process.watermark_moved, overview.supervised_since
    # It stood also while nobody wanted the stream to run.
    stands_since = moved if moved is None or begun is None else max(moved, begun)
    yield AlertStatus(
        "stream_watermark_moves",
        not _longer(stands_since, limits.watermark_stands_for, now),
        "no watermark yet"
        if moved is None or process.watermark is None
        else f"it moved {_ago(now - moved)} ago, to {process.watermark:%Y-%m-%d %H:%M:%S} UTC",
        {} if moved is None else {"seconds_since_it_moved": (now - moved).total_seconds()},
    )
    yield _freshness(overview, process, now)
    unusual = "; ".join(map(str, process.unusual))
    yield AlertStatus(
        "stream_is_usual",
        not unusual,
        unusual or "nothing unusual was seen",
        {"unusual_hours": len(process.unusual)} if limits.usual else {},
    )
    yield AlertStatus(
        "stream_rejects_few",
        limits.rejected_share is None or process.rejected_share <= limits.rejected_share,
        f"{process.rejected_share:.2%} of the rows of the last minutes",
        {"rejected_share": process.rejected_share},
    )
    grows = process.backlog_grows_since
    yield AlertStatus(
        "stream_backlog_shrinks",
        not _longer(grows, limits.backlog_grows_for, now),
        (process.waiting or "not counted yet") + ("" if grows is None else f", more and more for {_ago(now - grows)}"),
        backlog_numbers(process.backlog),
    )
    delivered = {delivery.name for delivery in overview.pipeline.deliveries}
    paused = {name: query.paused for name, query in process.queries.items() if query.paused is not None}
    yield _views(process, {name: why for name, why in paused.items() if name not in delivered}, limits, now)
    yield _lookups(process, limits, now)
    away = [f"{name} is paused: {why}" for name, why in paused.items() if name in delivered]
    away += [
        f"{name} waits for its target for {_ago(now - query.waiting_since)}: {query.waiting}"
        for name, query in process.queries.items()
        if query.waiting_since is not None and _longer(query.waiting_since, limits.target_away_for, now)
    ]
    yield AlertStatus(
        "stream_deliveries_arrive",
        not away,
        "; ".join(away) or "all targets take what comes",
        {"deliveries_that_wait": len(away)},
    )
    yield _receivers(overview, limits, now)
    yield _skew(overview.skew, limits)


def _crashes(overview: Overview, now: datetime) -> int:
    """The newest failures in a row that came soon after a start; 0 where they are few, or long ago."""
    count = sum(1 for _ in takewhile(lambda failure: failure.ran < _SHORT, reversed(overview.failures)))
    keeps_running = overview.state in ("starting", "running", "restarting")
    return count if keeps_running and count >= _FEW and now - overview.failures[-1].at < _SHORT else 0


def _freshness(overview: Overview, process: ProcessStatus, now: datetime) -> AlertStatus:
    late = [*lateness_texts(overview, now)]
    numbers = {"late_values": sum(values.late for values in process.values.values())} if process.values else {}
    return AlertStatus("stream_is_fresh", not late, "; ".join(late) or "all is as young as is asked", numbers)


def _views(process: ProcessStatus, paused: Mapping[str, str], limits: Limits, now: datetime) -> AlertStatus:
    stuck = [f"{name} is paused: {why}" for name, why in paused.items()]
    stuck += [
        f"{name} is behind its logs for {_ago(now - query.behind_since)}, now by {query.behind:,} batches"
        for name, query in process.queries.items()
        if query.behind_since is not None
        and name not in paused
        and _longer(query.behind_since, limits.view_behind_for, now)
    ]
    behind = max((query.behind or 0 for query in process.queries.values()), default=0)
    numbers = {"paused_views": len(paused), "batches_behind": behind}
    return AlertStatus("stream_views_follow", not stuck, "; ".join(stuck) or "all views step", numbers)


def _lookups(process: ProcessStatus, limits: Limits, now: datetime) -> AlertStatus:
    """Failures are told of for a while: nobody can say whether the next row will be answered."""
    recent_failures = {
        name: query
        for name, query in process.queries.items()
        if query.failed_at is not None and _lately(query.failed_at, limits.failures_told_for, now)
    }
    texts = (
        f"{name}: {query.failures:,} rows without an answer since the start, the last {_ago(now - query.failed_at)} ago"
        for name, query in recent_failures.items()
        if query.failed_at is not None
    )
    failures = sum(query.failures for query in process.queries.values())
    numbers = {"rows_without_an_answer": failures} if failures else {}
    return AlertStatus(
        "stream_lookups_answer", not recent_failures, "; ".join(texts) or "all rows get their answers", numbers
    )


def _receivers(overview: Overview, limits: Limits, now: datetime) -> AlertStatus:
    """They run also where no stream process does."""
    away = [
        f"{what} for {_ago(now - since)}: {why}"
        for what, since, why in _away(overview)
        if _longer(since, limits.source_away_for, now)
    ]
    lost = [
        f"{receiver.name} has lost rows {_ago(now - receiver.lost_at)} ago: {receiver.lost}"
        for receiver in overview.receivers
        if receiver.lost_at is not None and _lately(receiver.lost_at, limits.failures_told_for, now)
    ]
    numbers = {"receivers_that_wait": len(away)} if overview.receivers else {}
    text = "; ".join([*away, *lost]) or "all sources are there"
    return AlertStatus("stream_receivers_receive", not away and not lost, text, numbers)


def _away(overview: Overview) -> Iterator[tuple[str, datetime, str]]:
    """Each receiver that is not there: what is the matter with it, since when, and why.

    One that nobody has to keep running may be stopped, and the time before its supervisor began does not count.
    """
    begun, told = overview.supervised_since, {receiver.name for receiver in overview.receivers}
    for receiver in overview.receivers:
        if receiver.state != "stopped" and receiver.away_since is not None:
            since = receiver.away_since if begun is None else max(receiver.away_since, begun)
            yield f"{receiver.name} waits for {receiver.address}", since, receiver.why
        elif receiver.state == "stopped" and begun is not None:
            since = max(receiver.away_since or receiver.at, begun)
            yield f"{receiver.name} has not been running", since, receiver.why or "it has stopped"
    for name in (receiver.name for receiver in overview.pipeline.receivers if receiver.name not in told):
        if begun is not None:
            yield f"{name} has not been running", begun, "its process has never said a word"


def _skew(skew: Skew | None, limits: Limits) -> AlertStatus:
    name: AlertName = "stream_clocks_are_together"
    if skew is None:
        return AlertStatus(name, True, "no two clocks to compare")
    return AlertStatus(
        name,
        limits.watermark_skew is None or skew.by <= interval(limits.watermark_skew),
        f"{skew.behind} is {_ago(skew.by)} behind {skew.ahead}, with which {skew.operator} joins it",
        {"watermark_skew_seconds": skew.by.total_seconds()},
    )


def _longer(since: datetime | None, limit: str | None, now: datetime) -> bool:
    return since is not None and limit is not None and now - since > interval(limit)


def _lately(at: datetime, limit: str | None, now: datetime) -> bool:
    return limit is not None and not _longer(at, limit, now)


def _ago(length: timedelta) -> str:
    return f"{length.total_seconds() / 60:.0f} min"
