"""The first row of each key; those after it are told apart, and kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from streaming.base import check_type
from streaming.declare import Keyed, OnError, Stream, micros
from streaming.keyed.fold import Key
from streaming.keyed.library.forget import forget
from streaming.keyed.schemas import CopiesRows, ddl, row_types

DUPLICATES = "duplicates"
"""The side output of rows that are not the first of their key."""

_FORGET = "forget"


@dataclass(frozen=True)
class _KeepFirst(CopiesRows):
    """Emits the first row of a key, and any later one aside."""

    horizon: int | None

    def __call__(self, key: Key, row: Any) -> None:
        # A timer fires once the clock is there; whether a row is a duplicate must not wait for that.
        over = self.horizon is not None and key.first_at is not None and key.at >= key.first_at + self.horizon
        values = {name: row[name] for name in self.columns}
        if key.first_at is not None and not over:
            key.emit(DUPLICATES, **values, first_at=key.first_at)
            return
        key.emit(**values)
        key.first_at = key.at
        if self.horizon is not None:
            # A late row's copies come later still, so its horizon begins where the clock is.
            key.timer(_FORGET, max(key.at, key._stamp) + self.horizon)


def deduplicated(
    name: str,
    of: Stream,
    by: tuple[str, ...],
    *,
    horizon: str | None = None,
    on_error: OnError = "pause",
    version: int = 1,
    description: str = "",
) -> Keyed:
    """A keyed function that lets through the first row of each key, in the order of arrival, in whichever batch.

    The others go to the side output `duplicates`, with the event time of the first as `first_at`. With `horizon` a row
    at least that much later than the first is a first one again, and a key is forgotten once the watermark has moved on
    by that (as with Spark's `dropDuplicatesWithinWatermark`, in which a duplicate vanishes); without, a key is kept for
    ever.

    Raises:
        DeclarationError: the type of a column is not known.
    """
    check_type(f"of= of {name!r}", of, Stream, "the stream that it reads")
    types = row_types(f"a column of {name!r}", of, by)
    return Keyed(
        name=name,
        of=of,
        by=by,
        state="first_at timestamp",
        result=ddl(types),
        on_row=_KeepFirst(tuple(types), None if horizon is None else micros(horizon)),
        timers={} if horizon is None else {_FORGET: forget},
        sides={DUPLICATES: f"{ddl(types)}, first_at timestamp"},
        on_error=on_error,
        version=version,
        description=description,
    )
