"""Days that somebody asks to have delivered again: numbered requests, kept in the table of the delivery's ledger."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta

from deltalake import DeltaTable

from streaming.base import EPOCH, FencedError
from streaming.tables import delta, location

_NEWEST = "requests"
_DAY = timedelta(days=1)


@dataclass(frozen=True)
class AskedDays:
    """Request `number`: the days from `first` to `last`, both included."""

    number: int
    first: date
    last: date

    @property
    def days(self) -> frozenset[date]:
        """Each of the days."""
        return frozenset(self.first + each * _DAY for each in range((self.last - self.first).days + 1))


def ask_for_days(uri: str, days: Iterable[date], answered: int) -> int:
    """Note in the ledger at `uri` that `days` are asked for; returns the number of the newest request.

    Days in a row are one request. What is asked for already, and was not begun, is not asked for twice. `answered` is
    the newest request that is done.

    Raises:
        FencedError: somebody else has asked at the same moment.
    """
    table = DeltaTable(location(uri))
    newest = _newest(table)
    waiting = list(_requests(table, answered + 1))
    wanted = [span for span in _spans(days) if span not in [(each.first, each.last) for each in waiting]]
    if not wanted:
        return newest
    numbers: dict[str, int] = {}
    # A ledger that was restored has answered requests that it does not hold.
    since = max(newest, answered) + 1
    for number, (first, last) in enumerate(wanted, start=since):
        numbers |= {f"request {number} first": _ordinal(first), f"request {number} last": _ordinal(last)}
    asked = since + len(wanted) - 1

    def fence(there: DeltaTable) -> None:
        if _newest(there) != newest:
            raise FencedError("somebody else asks for days of the same delivery at this moment; ask again.")

    metadata = {"asked": [[first.isoformat(), last.isoformat()] for first, last in wanted]}
    delta.note(uri, metadata=metadata, numbers={**numbers, _NEWEST: asked}, fence=fence)
    return asked


def next_asked(uri: str, answered: int) -> AskedDays | None:
    """The oldest request in the ledger at `uri` after the one that was `answered` last."""
    table = delta.open_table(uri)
    return None if table is None else next(_requests(table, answered + 1), None)


def _requests(table: DeltaTable, since: int) -> Iterator[AskedDays]:
    for number in range(since, _newest(table) + 1):
        first, last = (table.transaction_version(f"request {number} {end}") for end in ("first", "last"))
        # Numbers are left out where a ledger was restored.
        if first is not None and last is not None:
            yield AskedDays(number, _day(first), _day(last))


def _newest(table: DeltaTable) -> int:
    newest = table.transaction_version(_NEWEST)
    return -1 if newest is None else newest


def _spans(days: Iterable[date]) -> list[tuple[date, date]]:
    """Days as spans of days in a row, oldest first."""
    spans: list[tuple[date, date]] = []
    for day in sorted(set(days)):
        if spans and day == spans[-1][1] + _DAY:
            spans[-1] = (spans[-1][0], day)
        else:
            spans.append((day, day))
    return spans


def _ordinal(day: date) -> int:
    return (day - EPOCH.date()).days


def _day(ordinal: int) -> date:
    return EPOCH.date() + ordinal * _DAY
