"""Rows into a Delta table, exactly once: the progress is in the commit of the rows, as Delta's own transactions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from streaming.base import (
    Dataset,
    DeclarationError,
    check_choice,
    check_tuple,
    check_type,
    dataset_at,
    is_only_place,
    place_in,
)
from streaming.lake import Lake
from streaming.sinks.sink import Delivered, Guarantee, Sink, Target

Mode = Literal["append", "upsert"]
MODES = ("upsert", "append")
_NOT_IN_PATHS = "%*[]{}\\"


def settle_mode(target: Target, mode: str, of: str) -> None:
    """Check `key` and `mode` of a table of files, and tell deliveries whether it keeps keys.

    Raises:
        DeclarationError: `mode` is unknown, or every row is to be kept and one of a key.
    """
    check_tuple(f"key of {of}", target.key, str, "a tuple of columns, such as key=('id',)")
    check_choice("mode", mode, f"of {of}", MODES)
    if target.key and mode == "append":
        raise DeclarationError(
            f"key={target.key!r} of {of} asks for one row of a key, and mode='append' for every row",
            "leave one of them out.",
            field="mode",
            value=mode,
        )
    object.__setattr__(target, "keeps_keys", mode == "upsert")


@dataclass(frozen=True)
class DeltaTable(Target):
    """Rows of the Delta table at `uri`, which is relative to the lake's root unless it is absolute or a URI.

    `mode="upsert"`: where there is a key, that of the table, of the delivery, or what identifies a current result, one
    row for each value of these columns; without one, every row is appended. A row takes the place of an older one of
    its key, never of a newer one: the column `_revision` (bigint) tells, by event time, end of window, or revision of a
    change. Of rows with one revision the one delivered last stays. Deletes of changes delete. `mode="append"`: every
    row as it comes, also of what is current, there with `_revision`, `_change` and `_reason`.

    Each batch is one commit by delta-rs, without Spark. Delta's transactions in it (`tidemark:<delivery>/...`) say
    which batch it is, and it follows the very version that was looked at. A table that is not there is created with the
    types of what is delivered; one that is must fit: it may lack columns, which are added, and a column of another type
    is refused, as is a table of the lake's own, one with partitions, and one with constraints, generated columns,
    mapped columns or deletion vectors. What Delta has no type for (times of day, intervals) is text, as JSON has it. A
    row with a null where the table takes none is a dead letter.

    An upsert reads key and revision of the files whose bounds have keys of the batch, and writes those anew that hold
    one, so a batch whose keys lie in all files costs what the table has. Small files are brought together on the way;
    `append` leaves that to whoever maintains the table (`OPTIMIZE`), and both leave old files to `VACUUM`.

    On S3 the store and credentials are those of the lake: `AWS_ENDPOINT_URL`, `AWS_REGION` and their like.

    Raises:
        DeclarationError: `uri` is none or has a credential in it, `mode` is unknown, or does not go with `key`.
    """

    uri: str
    key: tuple[str, ...] = ()
    mode: Mode = "upsert"
    batch: int = 100_000

    kind: ClassVar[str] = "deltalake"
    guarantee: ClassVar[Guarantee] = "exactly once"

    def __post_init__(self) -> None:
        check_type("uri of DeltaTable", self.uri, str, "a folder or URI, such as 's3://bucket/orders'")
        if not self.uri.strip("/"):
            raise DeclarationError(
                f"uri={self.uri!r} of DeltaTable names no place", "write 'exports/orders' or 's3://bucket/orders'."
            )
        if not is_only_place(self.uri):
            raise DeclarationError(
                f"the uri {place_in(self.uri)} of DeltaTable has more in it than a place",
                "leave user, password and query out; credentials are in the environment, such as AWS_ACCESS_KEY_ID.",
            )
        refused = next((sign for sign in _NOT_IN_PATHS if sign in self.uri), None)
        if refused is not None:
            raise DeclarationError(
                f"uri={self.uri!r} of DeltaTable contains {refused!r}, which delta-rs and Spark read as something else",
                "choose a place without it.",
                field="uri",
                value=self.uri,
            )
        settle_mode(self, self.mode, f"DeltaTable {self.uri!r}")

    @property
    def address(self) -> str:
        """The place."""
        return self.uri

    def datasets(self, lake: Lake) -> tuple[Dataset, ...]:
        """The table."""
        here = dataset_at(lake.path(self.uri))
        return () if here is None else (here,)

    def connect(self, lake: Lake, delivered: Delivered) -> Sink:
        """Opens the table when it is used first."""
        # Only who writes to Delta tables loads what reads Parquet.
        from streaming.sinks.delta_table_sink import DeltaSink

        return DeltaSink(lake.path(self.uri), self.address, delivered, upserts=self.mode == "upsert")
