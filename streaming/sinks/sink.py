"""The contract of a target: what a delivery carries rows to, as a declaration and as a connection to it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import ClassVar, Literal, Self

import pyarrow as pa

from streaming.base import REASON as REASON
from streaming.base import REVISION as REVISION
from streaming.base import Dataset, FencedError, ProgressError
from streaming.lake import Lake
from streaming.sinks.encoding import has_broken_text, has_repeated_keys, json_texts

_BYTES = 8
_MODULUS = 2 ** (8 * _BYTES)
_NAMED = 5
Guarantee = Literal["exactly once", "at least once"]
"""The promise of a target for a batch that is delivered again: `exactly once` if it is transactional or idempotent."""

TIME, CHANGE = "_time", "_change"
FAILURE = "_failure"
"""Columns that every batch has beside what is selected, and the two more of a batch of changes.

`_revision` (bigint) orders the rows of one key: a row never replaces one of a higher revision. `_time` (UTC) is the
event time of the row, or the start of its window. `_change` is `upsert` or `delete`; `_reason` says why: `first`,
`update` or `correction`. `_failure` is there where a row may be one that cannot be computed, and says why; no target
is given such a row.
"""

RESULT_ID = "_result_id"
"""A text that identifies a current result where no columns of it do; it is delivered as a selected column is."""

DELETE = "delete"


@dataclass
class Checksum:
    """The number of records, and the sum of their BLAKE2b digests of 64 bits, modulo 2^64.

    A sum, not an exclusive or, so that a record that is there twice does not vanish.
    """

    records: int = 0
    total: int = 0

    def add(self, records: Iterable[bytes]) -> None:
        """Take records in."""
        for record in records:
            digest = blake2b(record, digest_size=_BYTES).digest()
            self.records += 1
            self.total = (self.total + int.from_bytes(digest)) % _MODULUS

    @staticmethod
    def by_name() -> defaultdict[str, Checksum]:
        """Checksums of parts, each of which begins empty."""
        return defaultdict(Checksum)


@dataclass(frozen=True)
class Comparison:
    """The number of records compared, and of the units that differ; `unit`: the words for one and for several.

    Some of those that differ are `named`.
    """

    records: int
    differing: int
    unit: tuple[str, str]
    named: tuple[str, ...] = field(default=())

    @classmethod
    def of_folders(cls, should: Mapping[str, Checksum], there: Mapping[str, Checksum]) -> Self:
        """The folders whose checksums differ; none where all rows are there, in other folders of an older layout."""
        if _sum(should) == _sum(there):
            return cls(_sum(should).records, 0, ("folder", "folders"))
        nothing = Checksum()
        names = sorted({*should, *there})
        differ = [name for name in names if should.get(name, nothing) != there.get(name, nothing)]
        return cls(
            _sum(should).records, len(differ), ("folder", "folders"), tuple(name for name in differ[:_NAMED] if name)
        )


def _sum(parts: Mapping[str, Checksum]) -> Checksum:
    records = sum(part.records for part in parts.values())
    return Checksum(records, sum(part.total for part in parts.values()) % _MODULUS)


@dataclass(frozen=True)
class NumberedBatch:
    """Rows of a table in a fixed cut: the same number of the same delivery always holds the same rows.

    `delivery` and `generation` name the delivery and how often it began anew; `number` counts from 0.
    """

    delivery: str
    generation: int
    number: int
    rows: pa.Table

    @property
    def key(self) -> str:
        """The idempotency key: the same for every attempt at this batch, and for no other batch."""
        return f"{self.delivery}/{self.generation}/{self.number}"

    @property
    def selected(self) -> pa.Table:
        """The rows with the columns that were selected, and no other."""
        names = self.rows.column_names
        return self.rows.select([name for name in names if not name.startswith("_") or name == RESULT_ID])

    @property
    def messages(self) -> pa.Table:
        """The rows as a consumer of messages needs them: of changes, also revision, kind and reason."""
        change_columns = (REVISION, CHANGE, REASON) if CHANGE in self.rows.column_names else ()
        return self.rows.select([*self.selected.column_names, *change_columns])

    def part(self, first: int, rows: int) -> Self:
        """Rows that follow one another, under the same number."""
        return replace(self, rows=self.rows.slice(first, rows))

    def at(self, positions: Sequence[int]) -> Self:
        """Some of the rows, under the same number."""
        if len(positions) == self.rows.num_rows:
            return self
        return replace(self, rows=self.rows.take(pa.array(positions, pa.int64())))

    def unwritable(self) -> list[RefusedRow]:
        """The rows that no target is given, as they could not be computed, or nobody could read them back.

        In the latter a map has one key twice, or a text is no UTF-8.
        """
        failures = self.rows[FAILURE].to_pylist() if FAILURE in self.rows.column_names else []
        reasons = {position: why for position, why in enumerate(failures) if why is not None}
        for name in self.selected.column_names:
            for position, broken in enumerate(has_broken_text(self.rows[name])):
                if broken:
                    (text,) = json_texts(self.rows[name].slice(position, 1))
                    why = f"column {name!r} has a text that is no UTF-8, {text}; deliver it as bytes (`cast(... as "
                    reasons.setdefault(position, why + "binary)`), or leave such rows out with `where`.")
            for position, repeated in enumerate(has_repeated_keys(self.rows[name])):
                if repeated:
                    (pairs,) = json_texts(self.rows[name].slice(position, 1))
                    why = f"column {name!r} has a map with one key twice, in {pairs}; make the keys differ, or deliver "
                    reasons.setdefault(position, why + "the column in another form.")
        return [RefusedRow(position, reasons[position]) for position in sorted(reasons)]

    def without(self, refused: Collection[int]) -> tuple[Self, Sequence[int]]:
        """The rows but for those at some positions, under the same number; and the position that each had."""
        kept = [position for position in range(self.rows.num_rows) if position not in refused]
        return self.at(kept), kept


@dataclass(frozen=True)
class RefusedRow:
    """A row that the target refused: its position in the batch, and what the target said."""

    position: int
    error: str


PutAside = Callable[[Sequence[RefusedRow]], None]
"""Keeps the rows of a batch that were refused, in place of those of an earlier attempt at it."""


@dataclass(frozen=True)
class Delivered:
    """The delivery that a sink belongs to, as far as the sink must know it.

    `name` is that of the delivery in the lake, and `identity` tells it from one of the same name in another. Of `key`
    the target keeps one row each; where it is empty, every row. `changes`: batches hold upserts and deletes.
    """

    name: str
    identity: str = ""
    key: tuple[str, ...] = ()
    changes: bool = False


class Sink(ABC):
    """A connection to a target, of one process and one delivery."""

    @abstractmethod
    def delivered_through(self, generation: int) -> int | None:
        """The greatest number of a batch that the target itself knows to be delivered whole; -1 for none.

        None where the target keeps no progress, which is then kept in the lake, after each batch.

        Raises:
            SinkError: the target is away.
            ProgressError: the progress there is of another delivery.
        """

    @abstractmethod
    def deliver(self, batch: NumberedBatch, put_aside: PutAside) -> None:
        """Deliver a batch, and with it the progress where the target keeps it.

        Once it is known which rows the target refuses, and before any progress is durable, `put_aside` is called with
        them, also where there is none. Delivering a batch again leaves the target as the first time did, where the
        guarantee is `exactly once`.

        Raises:
            SinkError: the target refused the batch as a whole, or is away; nothing of it counts, and it is sent again.
            FencedError: another process has delivered what comes after this batch.
        """

    def count(self) -> int | None:
        """The number of rows of this delivery that the target holds, for an audit; None where it cannot tell."""
        return None

    def compare(self, generation: int, expected: Iterable[pa.Table]) -> Comparison | None:
        """Read back what is there and hold it against the rows that should be; None where that cannot be done.

        `expected` are all rows of this delivery that the target should have, in any order and in pieces, of which there
        is at least one; they have the columns of a batch. Where the target keeps every row, they are those of
        `generation`.

        Raises:
            SinkError: the target is away.
        """
        return None

    def close(self) -> None:
        """Let go of the connection."""
        return None


class Target(ABC):
    """The declaration of a target: a frozen value, without secrets. To add one, see `streaming/README.md`."""

    kind: ClassVar[str]
    """The name that Dagster shows an icon for, such as `postgres`."""
    guarantee: ClassVar[Guarantee]
    keeps_keys: ClassVar[bool] = False
    """True if the target can keep one row per key, and delete it."""
    keeps_history: ClassVar[bool] = False
    """True if all rows of a key stay there, of which a reader keeps the last; they are counted by reading them all."""
    takes_changes: ClassVar[bool] = True
    """True if rows of what is current can go there, each with its revision, as upsert or delete."""

    batch: int = 10_000
    """The most rows of a batch, unless the delivery says otherwise."""
    flush: str | None = None
    """The time that rows wait for a batch to be full, as an interval; None: not at all."""

    key: tuple[str, ...] = ()
    """The columns of which the target keeps one row each; none where it keeps every row."""

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns that it cannot do without, beside the key."""
        return ()

    @property
    @abstractmethod
    def address(self) -> str:
        """Where it is, for people, without anything secret."""

    def datasets(self, lake: Lake) -> tuple[Dataset, ...]:
        """The datasets that it writes, as lineage names them; none where there is no such name."""
        return ()

    @abstractmethod
    def connect(self, lake: Lake, delivered: Delivered) -> Sink:
        """A connection for one delivery; it may wait to connect until it is used."""


def check_own(delivered: Delivered, identity: str, address: str, place: str, way_out: str = "") -> None:
    """Refuse progress of a delivery with another `identity`, which `place` at `address` has under the same name.

    `way_out` says what to do with it if that delivery is over; left out, it is to be deleted.

    Raises:
        ProgressError: with the ways out.
    """
    if identity != delivered.identity:
        raise ProgressError(
            f"{address} has progress of another delivery that is called {delivered.name!r} too: of "
            "another lake, or of this one before its tables were removed. Rename the delivery; or, if the other "
            f"one is over, {way_out or f'delete what {place} has of it'}. Nothing was delivered."
        )


def check_follows(batch: NumberedBatch, newest: int, newest_generation: int, address: str) -> None:
    """Refuse a batch that is not the one after `newest`, or of an older generation than the newest there.

    Raises:
        FencedError: another process has delivered meanwhile.
    """
    if batch.number != newest + 1 or newest_generation > batch.generation:
        raise FencedError(
            f"batch {batch.key} is not the one that follows in {address}, which has batch {newest} of "
            "that generation, so another process delivers there. Let it run alone; nothing was written."
        )
