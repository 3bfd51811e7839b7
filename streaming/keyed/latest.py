"""The newest row per key as a table, with the history of those before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from streaming.base import check_type
from streaming.declare import Keyed, OnError, Stream
from streaming.keyed.fold import Key
from streaming.keyed.schemas import CopiesRows, ddl, row_types, struct_of


@dataclass(frozen=True)
class _KeepNewest(CopiesRows):
    """Emits the row that is superseded with the time for which it was valid, and keeps the one that supersedes it."""

    def __call__(self, key: Key, row: Any) -> None:
        if key.newest is not None:
            key.emit(**key.newest, valid_from=key.since, valid_to=key.at)
        key.newest = {name: row[name] for name in self.columns}
        key.since = key.at


def latest(
    name: str,
    of: Stream,
    by: tuple[str, ...],
    *,
    on_error: OnError = "pause",
    version: int = 1,
    description: str = "",
) -> Keyed:
    """A keyed function whose state is the newest row per key by event time, and whose results are the rows before it.

    The state has the row in the struct `newest` and the time from which it is valid in `since`; `tidemark show PIPELINE
    state` reads it. A result is a row that was superseded, with `valid_from` and `valid_to`. Of rows of one event time
    the last in the log's order is the newest. Rows take effect once the clock has passed them, and late ones none.

    It is no table of what stands: a row that comes late changes nothing, now or later, no row says that its key is
    gone, and nothing corrects what was emitted. What follows late changes and deletes is `History(kind=1)` of a stream
    with a key, and with all intervals `History(kind=2)`.

    Raises:
        DeclarationError: a column has a type that is not known, or the name of one that is added.
    """
    check_type(f"of= of {name!r}", of, Stream, "the stream that it reads")
    types = row_types(f"a column of latest {name!r}", of, by)
    return Keyed(
        name=name,
        of=of,
        by=by,
        state=f"newest {struct_of(types)}, since timestamp",
        result=f"{ddl(types)}, valid_from timestamp, valid_to timestamp",
        on_row=_KeepNewest(tuple(types)),
        order="event",
        on_error=on_error,
        version=version,
        description=description,
    )
