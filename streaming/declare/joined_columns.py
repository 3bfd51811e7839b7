"""The columns of a pair of rows, and of a join's tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

from streaming.base import DAY, ORIGIN, names_in
from streaming.declare.columns import ColumnSpec
from streaming.declare.input_side import SideName
from streaming.declare.side import is_column
from streaming.declare.stream import Stream

LEFT_AT, RIGHT_AT = "_left_at", "_right_at"
"""The event times of the rows of a pair."""


class PairColumns:
    """Under which names SQL over a pair reads the columns of both streams, joined on `keys`: (left's, right's)."""

    def __init__(self, left: Stream, right: Stream, keys: tuple[tuple[str, str], ...]) -> None:
        self._streams = {"left": left, "right": right}
        self._keys = dict(keys)

    @cached_property
    def left(self) -> dict[str, str]:
        """Of each column of the left stream, its name in a pair."""
        own, other = self._streams["left"].columns, self._not_key_of_right
        return {name: self._named("left", name, () if name in self._keys else other) for name in own}

    @cached_property
    def right(self) -> dict[str, str]:
        """Of each column of the right stream that is no key, its name in a pair."""
        return {name: self._named("right", name, self._streams["left"].columns) for name in self._not_key_of_right}

    @property
    def selectable(self) -> tuple[str, ...]:
        """The columns that are selected unless said otherwise."""
        return (*self.left.values(), *self.right.values())

    @cached_property
    def types(self) -> dict[str, str | None]:
        """The columns that SQL may read, with their Spark types, None where only Spark knows it."""
        left, right = self._streams["left"], self._streams["right"]
        return {
            **{alias: left.types[name] for name, alias in self.left.items()},
            **{alias: right.types[name] for name, alias in self.right.items()},
            LEFT_AT: "timestamp",
            RIGHT_AT: "timestamp",
        }

    @cached_property
    def of(self) -> dict[str, tuple[tuple[str, str], ...]]:
        """Of each column that SQL may read, those of the logs that it is: of a key both."""
        left, right = self._streams["left"], self._streams["right"]
        return {
            **{
                alias: ((left.name, name), *([(right.name, self._keys[name])] if name in self._keys else []))
                for name, alias in self.left.items()
            },
            **{alias: ((right.name, name),) for name, alias in self.right.items()},
            LEFT_AT: ((left.name, left.event_time),),
            RIGHT_AT: ((right.name, right.event_time),),
        }

    @property
    def _not_key_of_right(self) -> tuple[str, ...]:
        return tuple(name for name in self._streams["right"].columns if name not in self._keys.values())

    @staticmethod
    def _named(side: SideName, name: str, others: tuple[str, ...]) -> str:
        # Spark does not tell `id` from `ID`.
        return f"{side}_{name}" if name.lower() in {other.lower() for other in others} else name


def selected_columns(
    pair: PairColumns, selected: Mapping[str, str], types: Mapping[str, str | None]
) -> Iterator[ColumnSpec]:
    """What is selected, with the `types` of its columns."""
    for name, sql in selected.items():
        of = dict.fromkeys(one for column in sorted(names_in(sql)) for one in pair.of[column])
        yield ColumnSpec(name, "" if is_column(sql, name) else f"`{sql}`.", types[name], tuple(of))


def added_columns(streams: int) -> Iterator[ColumnSpec]:
    """What every row of a join has beside its own columns, of so many streams."""
    brought = "Number of the step that brought it" if streams > 1 else "Number of the batch with which it came"
    yield ColumnSpec(LEFT_AT, "Event time of the left row.", "timestamp")
    yield ColumnSpec(RIGHT_AT, "Event time of the right row.", "timestamp")
    yield ColumnSpec("_at", "Event time: the later one of both.", "timestamp")
    yield ColumnSpec("_watermark", "The stamp: the later one of both rows.", "timestamp")
    yield ColumnSpec("_batch", f"{brought}, in the table's own sequence.", "bigint")
    yield ColumnSpec(ORIGIN, "Where the sources had the left and the right row.", "struct")
    yield ColumnSpec("_written_at", "When it was written.", "timestamp")
    yield ColumnSpec(DAY, "Date of the event time, UTC.", "date")


def late_columns(streams: tuple[Stream, ...]) -> Iterator[ColumnSpec]:
    """The columns of the late rows of a join of `streams`, each of which has columns of its own."""
    yield ColumnSpec("stream", "Whose row it is.", "string")
    yield ColumnSpec("_at", "Event time.", "timestamp", tuple((each.name, each.event_time) for each in streams))
    yield ColumnSpec(
        "_watermark", "The stamp: the watermark that was in force when the row's batch was read.", "timestamp"
    )
    yield ColumnSpec("_batch", "Number of the batch that brought the row, in its log's own sequence.", "bigint")
    of = tuple((each.name, name) for each in streams for name in each.columns)
    yield ColumnSpec("row", "The row, as JSON.", "string", of)
