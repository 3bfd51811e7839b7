"""How an enrichment asks, in words, what waits, and how far it is."""

from __future__ import annotations

from streaming.base import counted
from streaming.declare import FAILED, PENDING, Enriched, described
from streaming.lake import Lake
from streaming.log import head, require_log
from streaming.lookups.calls import capacity_of
from streaming.lookups.reached import Reached
from streaming.tables import delta


def explain(lake: Lake, enriched: Enriched) -> dict[str, str]:
    """By heading; the enrichment's tables may be there or not.

    Raises:
        LogError: nothing has been ingested yet.
    """
    require_log(lake, enriched.of)
    each = f"each {', '.join(enriched.key)}" if enriched.key else "each row"
    answers = f" Answers are kept for {enriched.cache}." if enriched.cache else ""
    return {
        "results": f"rows of {enriched.of.name} with {', '.join(enriched.result)}, {_count(lake, enriched, '')}",
        "computed": f"{described(enriched.call)} version {enriched.version} for {each}, as {_how(enriched)}.{answers}",
        "order": _order(enriched),
        "failures": f"{_failures(enriched)} {_count(lake, enriched, FAILED)} in {enriched.table_name(FAILED)}",
        "pending": f"{_count(lake, enriched, PENDING)} in {enriched.table_name(PENDING)}",
        "steps": "after each batch of the log" if enriched.every is None else f"at most every {enriched.every}",
        "position": _position(lake, enriched),
    }


def _how(enriched: Enriched) -> str:
    kind = "a coroutine" if enriched.is_async else "a function in processes that can be killed"
    return f"{kind}, {counted(capacity_of(enriched), 'call')} at a time"


def _order(enriched: Enriched) -> str:
    if enriched.order == "arrival":
        return "that of the log: a row that waits holds back those behind it"
    return "as answers come: a row that waits holds back none"


def _failures(enriched: Enriched) -> str:
    ends = {"side": "go to the side output 'failed'", "null": "come with nulls", "default": "come with defaults"}
    attempts = counted(enriched.retries + 1, "attempt")
    return f"after {attempts} of at most {enriched.timeout} each they {ends[enriched.on_failure]}."


def _count(lake: Lake, enriched: Enriched, suffix: str) -> str:
    table = delta.open_table(lake.table(enriched, suffix))
    return counted(0 if table is None else table.count(), "row")


def _position(lake: Lake, enriched: Enriched) -> str:
    newest, at = head(lake, enriched.of), Reached.of(delta.open_table(lake.table(enriched)))
    assert newest is not None
    within = f" and {counted(at.place.row, 'row')} of the next" if at.place.row else ""
    return f"batch {at.place.through:,}{within} of {newest.number:,}; never built anew"
