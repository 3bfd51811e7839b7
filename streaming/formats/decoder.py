"""Payloads to values, in the Python workers of Spark: what the formats have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import pyarrow as pa

from streaming.base import DeclarationError, T, needs, sql
from streaming.tables import nullable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

UNREADABLE = "_unreadable"
"""The column with the reason against the payload as a whole, text; null where it could be read."""

WRONG = "_wrong"
"""The column with a struct of a field per declared column, the reason against its value; null where all is well."""

UNKNOWN = "_unknown"
"""The column with the names of the fields that the payload has and nobody declared; null where there is none."""

MOST_WRITERS = 1_000
"""Schemas that a decoder knows at once, as many as the registry's own client keeps."""

_MAGIC, _HEAD = 0, 5
_NOT_FOUND, _NO_NUMBER = 404, -1
_Writer = TypeVar("_Writer")


class Unreadable(Exception):
    """The payload as a whole cannot be read; the text is the reason."""


@dataclass
class Row:
    """A payload as a row: a value for each column, the reasons against some of them, and fields nobody declared."""

    values: Sequence[Any]
    wrong: Mapping[str, str] | None = None
    unknown: Sequence[str] | None = None


class Writers(Generic[_Writer]):
    """A cache of what is known about the schemas that payloads were written with, by what names them.

    Anybody can make up ids, so those that were used least lately make room for others.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[Hashable, _Writer] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def get(self, key: Hashable, ask: Callable[[], _Writer]) -> _Writer:
        """The entry of `key`, from the cache or else by asking."""
        if key in self._known:
            self._known.move_to_end(key)
            return self._known[key]
        writer = self._known[key] = ask()
        if len(self._known) > MOST_WRITERS:
            self._known.popitem(last=False)
        return writer


@dataclass
class Decoder(ABC):
    """Makes rows of Arrow out of payloads; what cannot be read has a reason instead of values.

    `columns` are the names of the declared ones. `types`: those of the columns that `decoded` adds, as Arrow has them.
    `registry`: the URL of a schema registry, whose ids payloads begin with.
    """

    columns: tuple[str, ...]
    types: pa.Schema
    registry: str | None

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the format, with which reasons begin."""

    @abstractmethod
    def row(self, content: bytes, identity: int | None, client: Any) -> Row:
        """Read a payload without its head; `identity` names the schema that it was written with in the registry.

        Raises:
            Unreadable: it is none of the declared schema.
        """

    def client(self) -> Any:
        """A client of the registry; None where there is none."""
        if self.registry is None:
            return None
        from confluent_kafka.schema_registry import SchemaRegistryClient

        return SchemaRegistryClient({"url": self.registry})

    def batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches with the decoded columns behind their own."""
        client = self.client()
        for batch in batches:
            # As bytes, since text may be no UTF-8.
            decoded = self.of_batch(batch, batch.column("_raw").cast(pa.binary()), client)
            names = [*batch.schema.names, *self.types.names]
            yield pa.RecordBatch.from_arrays([*batch.columns, *decoded], names=names)

    def of_batch(self, batch: pa.RecordBatch, payloads: pa.BinaryArray, client: Any) -> list[pa.Array]:
        """The columns that the `payloads` of a batch are decoded to, one after the other."""
        return self.arrays(payloads, client)

    def arrays(self, payloads: pa.BinaryArray, client: Any) -> list[pa.Array]:
        """The columns that payloads are decoded to, one after the other."""
        rows = [self._row(payload, client) for payload in payloads.to_pylist()]
        try:
            return self._built(rows)
        # Arrow refuses a value that its type cannot keep, and would take the whole batch with it.
        except (pa.ArrowException, ArithmeticError, TypeError, ValueError):
            return self._built([self._kept(row) for row in rows])

    def _built(self, rows: Sequence[Sequence[Any]]) -> list[pa.Array]:
        return [pa.array([row[place] for row in rows], type_.type) for place, type_ in enumerate(self.types)]

    def _kept(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        try:
            self._built([row])
        except (pa.ArrowException, ArithmeticError, TypeError, ValueError) as error:
            return self._nothing(f"a value is none of its declared type ({error})")
        return row

    def _nothing(self, reason: str | None) -> tuple[Any, ...]:
        return (*(None for _ in self.columns), reason and f"{self.name}: {reason}", None, None)

    def _row(self, content: bytes | None, client: Any) -> tuple[Any, ...]:
        if content is None:
            return self._nothing(None)
        identity = None
        try:
            if client is not None:
                if len(content) < _HEAD or content[0] != _MAGIC:
                    raise Unreadable("the payload does not begin with the id of a schema")
                identity, content = int.from_bytes(content[1:_HEAD]), content[_HEAD:]
            row = self.row(content, identity, client)
        except Unreadable as error:
            return self._nothing(str(error))
        return (*row.values, None, row.wrong, row.unknown)


def added_types(columns: Sequence[sql.Column]) -> T.StructType:
    """The columns that a format adds to its payloads: the declared ones, and what is told of each payload."""
    declared = ", ".join(f"`{column.name}` {column.type}" for column in columns)
    reasons = ", ".join(f"`{column.name}`: string" for column in columns)
    added = T.StructType.fromDDL(f"{declared}, {UNREADABLE} string, {WRONG} struct<{reasons}>, {UNKNOWN} array<string>")
    assert isinstance(added, T.StructType)
    # What must be there is the format's to judge, as the fields of a rejected row are null.
    return nullable(added)


def arrow_types(columns: Sequence[sql.Column]) -> pa.Schema:
    """The types of `added_types` as a decoder builds them."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(added_types(columns), timezone="UTC")


def decoded(raw: DataFrame, columns: Sequence[sql.Column], decoder: Decoder) -> DataFrame:
    """`raw` with what the decoder adds to it: as the contract of formats says."""
    return raw.mapInArrow(decoder.batches, T.StructType([*raw.schema.fields, *added_types(columns).fields]))


@dataclass(frozen=True)
class Registered:
    """The text of a schema in a registry, and by their names those that it refers to, each behind what it refers to."""

    text: str
    references: Mapping[str, str]


def schema_of(identity: int, client: Any, type_: str, form: str | None = None) -> Registered:
    """The schema that a registry has under a number, in the `form` that it is to tell it in.

    Raises:
        Unreadable: it has none, or one of another type.
        SchemaRegistryError: it does not answer as it should, which is nothing that a row could be blamed for.
    """
    schema = _answer(lambda: client.get_schema(identity, fmt=form), f"schema {identity}")
    # A registry leaves out the type of a schema of Avro.
    if (schema.schema_type or "AVRO") != type_:
        raise Unreadable(f"schema {identity} of the registry is of type {schema.schema_type or 'AVRO'}")
    references: dict[str, str] = {}
    _add_references(schema, client, form, references)
    return Registered(str(schema.schema_str), references)


def _add_references(schema: Any, client: Any, form: str | None, references: dict[str, str]) -> None:
    for each in schema.references or ():
        if each.name not in references:
            what = f"version {each.version} of {each.subject!r}"
            # Also what was deleted since is what was meant.
            version = _answer(partial(client.get_version, each.subject, each.version, True, form), what)
            _add_references(version.schema, client, form, references)
            references[each.name] = str(version.schema.schema_str)


def _answer(ask: Callable[[], Any], what: str) -> Any:
    from confluent_kafka.schema_registry.error import SchemaRegistryError

    try:
        return ask()
    except SchemaRegistryError as error:
        # A server that is no registry, or one that stands before it, has no such number for what it does not find.
        if error.http_status_code != _NOT_FOUND or (error.error_code or _NO_NUMBER) == _NO_NUMBER:
            raise
        raise Unreadable(f"the registry has no {what}") from error


def check_registry(format_: str, registry: str | None) -> None:
    """Refuse what is no URL of a registry, and a registry where its client is not installed.

    Raises:
        DeclarationError: with what to write.
        MissingExtra: with what to install.
    """
    if registry is not None:
        needs("confluent_kafka", f"a registry of schemas, which {format_} names,")
    if registry is not None and not registry.startswith(("http://", "https://")):
        raise DeclarationError(
            f"registry={registry!r} of {format_} is no URL",
            "write one, such as 'http://localhost:8081'.",
            field="registry",
            value=registry,
        )
