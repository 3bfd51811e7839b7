"""The contract of a format: from a payload to the declared columns, and what of it could not be read.

A format is a declaration: a frozen value that can be hashed, compared, pickled and copied. What it makes of a frame is
columns only: nothing is executed, and every row is parsed by itself, so that a batch may be read twice.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any

from streaming.base import DeclarationError, FrozenMapping, check_mapping, sql
from streaming.formats.decoder import Decoder, decoded

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TYPED = "_typed"
"""The column that a source may add: true for a payload that Spark has written as JSON of typed columns."""
_OF_COLUMNS = ("schema", "column", "descriptor_set")
"""The fields of formats that say nothing but which columns there are."""


@dataclass(frozen=True)
class Revisions:
    """The parts of a stream with a key that a format tells by itself, as SQL over its columns.

    `name` stands for both: it changes where they would tell another order. `sequence` and `deletes` are as a stream has
    them. A payload for which `concerns` is false is about no row. `as_before` is a column of names of columns: their
    value was not sent, and is the one that stands.
    """

    name: str
    sequence: str
    deletes: str
    concerns: str
    as_before: str


class Format(ABC):
    """The way in which a payload becomes columns."""

    @property
    @abstractmethod
    def columns(self) -> tuple[sql.Column, ...]:
        """The declared columns, in order; none begins with `_`."""

    @property
    def words(self) -> str:
        """Its name, and in brackets what else is declared of it than columns, such as `Csv(separator=;)`; no secret."""
        given = ((each.name, getattr(self, each.name)) for each in _declared_fields(self))
        told = ", ".join(f"{name}={_shown(value)}" for name, value in given)
        return f"{type(self).__name__}({told})" if told else type(self).__name__

    @property
    def revisions(self) -> Revisions | None:
        """The parts of revisions that it tells by itself; None for a format that knows of rows alone."""
        return None

    @property
    def decoder(self) -> Decoder | None:
        """The reader of its payloads in Python workers; None where expressions of Spark read them."""
        return None

    @property
    def masks_payloads(self) -> bool:
        """True if values within a payload can be masked (`masked_payload`), as in formats that are text."""
        return False

    def masked_payload(self, payload: bytes, masks: Mapping[str, Callable[[bytes], bytes | None]]) -> bytes | None:
        """The payload with other values in some places, as its format writes them; None where that is not certain.

        `masks`: by the path of a column, or of a field within one, what gives the value in place of one that is there,
        both in UTF-8; null where it gives None.
        """
        return None

    def parse(self, raw: DataFrame) -> DataFrame:
        """The columns of `raw`, as they are, then the declared ones, `_unreadable`, `_wrong` and `_unknown`.

        `raw` has a column `_raw`, binary or text that may be no UTF-8, and may be a streaming frame.

        No payload makes it fail, and nothing is lost without a word: where a declared value is null though the payload
        has one, or where a required one is missing, there is a reason in `_wrong`; where the payload cannot be read at
        all, in `_unreadable`. No payload at all, a null `_raw`, is a row whose declared columns are null, without any
        reason: such a row says that its key is gone. A format may take its time from `_origin`, where `raw` has that.
        `_unknown` (array<string>) names fields of the outermost level, each once and in order of their names, and is
        null where the payload could not be read. A format may name fields of nested objects as well, by their paths.

        `raw` may have a boolean `_typed`. A payload of which it is true was written by Spark, of values that a table
        has, so JSON takes from it what it refuses of other senders.

        Raises:
            DeclarationError: the format has no decoder, and does not say otherwise how it parses.
        """
        decoder = self.decoder
        if decoder is None:
            raise DeclarationError(
                f"format {type(self).__name__} has neither a decoder nor a parse of its own", "write one of the two."
            )
        return decoded(raw, self.columns, decoder)


def _declared_fields(of: Format) -> list[Field[Any]]:
    """The fields that have another value than by default, but for those of the columns."""
    found: list[Field[Any]] = []
    declared: tuple[Field[Any], ...] = fields(of) if is_dataclass(of) else ()
    for each in declared:
        default: object = each.default if each.default_factory is MISSING else each.default_factory()
        if each.name not in _OF_COLUMNS and getattr(of, each.name) != default:
            found.append(each)
    return found


def _shown(value: object) -> str:
    if isinstance(value, Format):
        return value.words
    text = str(dict(sorted(value.items()))) if isinstance(value, Mapping) else str(value)
    # The URL of a registry may have a password.
    return re.sub(r"//[^/@]*@", "//", text)


def checked_fields(form: str, columns: Sequence[sql.Column], fields: Mapping[str, str]) -> FrozenMapping[str, str]:
    """The names of the fields that columns are read from, where they are not those of the columns.

    Raises:
        DeclarationError: there is no such column, or two columns are of one field.
    """
    advice = "a mapping from columns to the names of their fields, such as {'id': '_id'}"
    check_mapping(f"fields of {form}", fields, str, advice)
    names = [column.name for column in columns]
    others = [name for name in fields if name not in names]
    if others:
        raise DeclarationError(
            f"fields of {form} has {others[0]!r}, which is no declared column; columns are: {', '.join(names)}.",
            f"Write {advice}.",
            choices=tuple(names),
        )
    read = [fields.get(name, name) for name in names]
    twice = sorted({name for name in read if read.count(name) > 1})
    if twice:
        raise DeclarationError(
            f"two columns of {form} are read from the field {twice[0]!r}", "give each column a field of its own."
        )
    return FrozenMapping(fields)
