"""Records as they were written to the values of declared columns, by Avro's rules of resolution.

A schema is compared with the declared one once: what is promoted, converted, missing and undeclared is known before a
record is read. What the rules leave open is settled so that no value changes: numbers keep all of their digits or are
refused, and a number is taken in the unit in which it was written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import MAX_PREC, Context, Decimal
from typing import Any, NoReturn
from uuid import UUID

from streaming.base import DeclarationError
from streaming.formats.avro_types import Schema, branch_name, decimal_of, logical_of, members_of, named_in
from streaming.formats.binary_leaves import (
    BIGINT,
    BIGINT_OF,
    DATE,
    DATE_OF,
    INSTANT,
    INT,
    INT_OF,
    TEXT,
    Read,
    missing,
    mistyped,
    shown,
)
from streaming.formats.decoder import Row
from streaming.formats.leaves import FIRST_MICRO, LAST_MICRO
from streaming.formats.nested import Wrong

Named = Mapping[str, Schema]

_PROMOTED = {
    "long": ("int",),
    "float": ("int", "long"),
    "double": ("int", "long", "float"),
    "string": ("bytes",),
    "bytes": ("string",),
}
"""The types that each one may have been written as, besides itself."""

_UNITS = {"millis": 1_000, "micros": 1_000_000, "nanos": 1_000_000_000}
_UUID = re.compile("[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_EXACT = Context(prec=MAX_PREC)
_MOST_BITS = 1_000
"""Bits of a number that a reason shows; Python takes long for the digits of more."""

_FLOAT_DIGITS, _DOUBLE_DIGITS = 24, 53
"""Bits of a whole number that is exact in each, apart from zeros behind."""


@dataclass(frozen=True)
class _Field:
    """A declared field, its name where it was written, None where it was not, and how its value is read."""

    name: str
    written: str | None
    read: Read

    def of(self, record: Mapping[str, Any]) -> Any:
        return self.read(None if self.written is None else record[self.written])


@dataclass(frozen=True)
class Records:
    """The reader of written records as rows of a declared schema; `unknown` are the paths of undeclared fields."""

    fields: tuple[_Field, ...]
    unknown: tuple[str, ...]

    def row(self, record: Mapping[str, Any]) -> Row:
        """The values of the declared fields, None with a reason where there is none."""
        values: list[Any] = []
        wrong: dict[str, str] = {}
        for field in self.fields:
            try:
                values.append(field.of(record))
            except Wrong as error:
                values.append(None)
                wrong[field.name] = error.below(field.name).reason
        return Row(values, wrong or None, self.unknown or None)


def records_of(written: Schema, declared: Schema, written_names: Named | None = None) -> Records:
    """Compare the schema of a record with the declared one.

    Records are taken as `raw_schema` of the written one tells fastavro to read them. Where names of types are not those
    of `written` itself, `written_names` has them.
    """
    resolution = _Resolution(named_in(written) if written_names is None else written_names, named_in(declared))
    return Records(resolution.fields(written, declared), tuple(dict.fromkeys(resolution.others(written, declared, ""))))


def is_same_name(written: Mapping[str, Any], declared: Mapping[str, Any]) -> bool:
    """Avro compares names without their namespaces, and takes aliases of the declared type for its name."""
    names = {name.rpartition(".")[2] for name in (declared["name"], *declared.get("aliases", ()))}
    return written["name"].rpartition(".")[2] in names


def check_defaults(declared: Schema) -> None:
    """Refuse defaults that are no values of their fields.

    Raises:
        DeclarationError: with the field.
    """
    named = named_in(declared)
    nothing = {"type": "record", "name": declared["name"], "fields": []}
    # What nobody has written is read from the defaults alone.
    for record in [declared, *named.values()]:
        if record["type"] == "record":
            _Resolution({}, named).fields({**nothing, "name": record["name"]}, record)


@dataclass(frozen=True)
class _Resolution:
    """The types that have a name in the written schema and in the declared one."""

    written: Named
    declared: Named

    def fields(self, written: Mapping[str, Any], declared: Mapping[str, Any]) -> tuple[_Field, ...]:
        theirs = {field["name"]: field for field in written["fields"]}
        names = _written_names(theirs, declared["fields"])
        return tuple(self._field(theirs, names.get(field["name"]), field) for field in declared["fields"])

    def _field(self, theirs: Mapping[str, Any], name: str | None, declared: Mapping[str, Any]) -> _Field:
        if name is not None:
            return _Field(declared["name"], name, self.read(theirs[name]["type"], declared["type"]))
        if "default" in declared:
            return _Field(declared["name"], None, self._default(declared))
        return _Field(declared["name"], None, _missing)

    def others(self, written: Schema, declared: Schema, path: str) -> Iterator[str]:
        """The paths of the written fields that nobody declared, also of records within."""
        _, (kind, *_) = members_of(declared, self.declared)
        for theirs in members_of(written, self.written)[1]:
            if theirs["type"] != kind["type"]:
                continue
            if kind["type"] == "array":
                yield from self.others(theirs["items"], kind["items"], path)
            elif kind["type"] == "map":
                yield from self.others(theirs["values"], kind["values"], path)
            elif kind["type"] == "record":
                yield from self._others_of_record(theirs, kind, f"{path}." if path else "")

    def _others_of_record(self, written: Mapping[str, Any], declared: Mapping[str, Any], path: str) -> Iterator[str]:
        theirs = {field["name"]: field for field in written["fields"]}
        names = _written_names(theirs, declared["fields"])
        known = {names[field["name"]]: field for field in declared["fields"] if field["name"] in names}
        yield from (f"{path}{name}" for name in theirs if name not in known)
        for name, field in known.items():
            yield from self.others(theirs[name]["type"], field["type"], f"{path}{field['name']}")

    def read(self, written: Schema, declared: Schema) -> Read:
        """The function that makes values of a written type or union those of a declared one."""
        is_nullable, (kind, *_) = members_of(declared, self.declared)
        has_null, theirs = members_of(written, self.written)
        reads = [self._read(each, kind) for each in theirs]
        of_null = _null if is_nullable else _missing
        if not reads:
            return of_null
        if len(reads) == 1:
            return _or_null(reads[0], of_null) if has_null else reads[0]
        by_branch = {branch_name(place): read for place, read in enumerate(reads)}

        def of_union(value: Any) -> Any:
            if value is None:
                return of_null(value)
            ((branch, value),) = value.items()
            return by_branch[branch](value)

        return of_union

    def _read(self, written: Mapping[str, Any], declared: Mapping[str, Any]) -> Read:
        type_ = written["type"]
        if not self._is_readable(written, declared):
            words, name = _words(declared), logical_of(written) or written.get("name", type_)

            def refused(value: Any) -> NoReturn:
                raise mistyped(words, reveal(value), name)

            of_type: dict[str, Read] = {"boolean": _boolean, "map": _of_entries}
            reveal = _symbol_of(written) if type_ == "enum" else of_type.get(type_, _same)
            return refused
        if declared["type"] == "array":
            return _array(self.read(written["items"], declared["items"]))
        if declared["type"] == "map":
            return _map(self.read(written["values"], declared["values"]))
        if declared["type"] == "record":
            return _struct(self.fields(written, declared))
        return _leaf(written, declared)

    def _is_readable(self, written: Mapping[str, Any], declared: Mapping[str, Any]) -> bool:
        type_ = declared["type"]
        if written["type"] != type_ and written["type"] not in _PROMOTED.get(type_, ()):
            return False
        if type_ in ("record", "enum", "fixed") and not is_same_name(written, declared):
            return False
        if type_ == "fixed" and written["size"] != declared["size"]:
            return False
        theirs, ours = _meaning(written), _meaning(declared)
        # A number of days is no number of milliseconds, whatever both are written as.
        return theirs is None or ours is None or theirs == ours

    def _default(self, declared: Mapping[str, Any]) -> Read:
        is_nullable, (kind, *_) = members_of(declared["type"], self.declared)
        default, value = declared["default"], None
        if default is not None or not is_nullable:
            try:
                value = _Resolution(self.declared, self.declared)._read(kind, kind)(self._raw(default, kind))
            except (Wrong, _NoDefault, OverflowError) as error:
                reason = error.below(declared["name"]).reason if isinstance(error, Wrong) else "its type has none such"
                raise DeclarationError(
                    f"the default {default!r} of field {declared['name']!r} of the Avro schema cannot be used "
                    f"({reason})",
                    "write a value of its type as Avro has it in JSON, or leave it out.",
                ) from error
        return lambda nothing: value

    def _raw(self, default: Any, kind: Mapping[str, Any]) -> Any:
        """A default in JSON as fastavro would read the value."""
        type_ = kind["type"]
        if type_ in _WHOLE and type(default) is int:
            return _WHOLE[type_](default)
        if type_ in ("bytes", "fixed") and isinstance(default, str):
            return _latin(default, kind)
        if type_ == "array" and isinstance(default, list):
            return [self._member(each, kind["items"]) for each in default]
        if type_ == "map" and isinstance(default, dict):
            return [{"key": key, "value": self._member(each, kind["values"])} for key, each in default.items()]
        if type_ == "record" and isinstance(default, dict):
            return {field["name"]: self._of_field(default, field) for field in kind["fields"]}
        if type_ in ("float", "double") and (type(default) in (int, float) or default in _NO_NUMBERS):
            return float(default)
        if type_ == "boolean" and type(default) is bool:
            return bytes([default])
        if type_ == "enum" and default in kind["symbols"]:
            return kind["symbols"].index(default)
        if type_ != "string" or type(default) is not str:
            raise _NoDefault
        return default

    def _of_field(self, default: Mapping[str, Any], field: Mapping[str, Any]) -> Any:
        value = default.get(field["name"], field.get("default", _NOTHING))
        if value is _NOTHING:
            raise _NoDefault
        return self._member(value, field["type"])

    def _member(self, default: Any, schema: Schema) -> Any:
        is_nullable, (kind, *_) = members_of(schema, self.declared)
        return None if default is None and is_nullable else self._raw(default, kind)


class _NoDefault(Exception):
    """A default is none of its type."""


_NOTHING = object()
_WHOLE = {"int": INT_OF, "long": BIGINT_OF}
_NO_NUMBERS = ("NaN", "Infinity", "-Infinity")
"""Texts that stand in JSON for fractions that JSON has no numbers for."""


def _latin(default: str, kind: Mapping[str, Any]) -> bytes:
    """The bytes that a text of code points below 256 stands for."""
    try:
        value = default.encode("latin-1")
    except UnicodeEncodeError:
        raise _NoDefault from None
    if kind["type"] == "fixed" and len(value) != kind["size"]:
        raise _NoDefault
    return value


def _written_names(theirs: Mapping[str, Any], declared: Sequence[Mapping[str, Any]]) -> Mapping[str, str]:
    """The names that declared fields were written under, of those that were; each written field is one of them at most.

    An alias counts before another field of that name, as Avro renames what was written before it looks for names.
    """
    named = {field["name"]: field for field in declared}
    takers: dict[str, str] = {}
    others = [field for field in declared if field["name"] not in theirs]
    for field in others:
        alias = next((name for name in field.get("aliases", ()) if name in theirs and name not in takers), None)
        if alias is not None:
            takers[alias] = field["name"]
            # The field that has the name now may have an alias as well.
            others += [named[alias]] if alias in named else []
    takers |= {name: name for name in named if name in theirs and name not in takers}
    return {name: written for written, name in takers.items()}


def _meaning(kind: Mapping[str, Any]) -> str | None:
    """A logical type without the unit that it is counted in; None where there is none."""
    logical = logical_of(kind)
    return None if logical is None else logical.removesuffix("-millis").removesuffix("-micros").removesuffix("-nanos")


def _words(kind: Mapping[str, Any]) -> str:
    """The values that a declared type takes, in words."""
    type_, logical = kind["type"], logical_of(kind)
    if logical == "decimal":
        precision, scale = decimal_of(kind) or (0, 0)
        return f"a number within decimal({precision},{scale})"
    if logical is not None and logical in _LOGICAL_WORDS:
        return _LOGICAL_WORDS[logical]
    if type_ == "enum":
        return f"one of {', '.join(kind['symbols'])}"
    if type_ == "fixed":
        return f"{kind['size']} bytes of {kind['name']}"
    return f"a record {kind['name']}" if type_ == "record" else _TYPE_WORDS[type_]


_UUID_WORDS = "a UUID, such as 6fa459ea-ee8a-3ca4-894e-db77e160355e"
_LOGICAL_WORDS = {
    "date": DATE,
    "uuid": _UUID_WORDS,
    **dict.fromkeys((f"{local}timestamp-{unit}" for local in ("", "local-") for unit in ("millis", "micros")), INSTANT),
}
_TYPE_WORDS = {
    "int": INT,
    "long": BIGINT,
    "float": "a number within float",
    "double": "a number within double",
    "string": TEXT,
    "bytes": "bytes",
    "boolean": "true or false",
    "array": "an array",
    "map": "a map",
}


def _leaf(written: Mapping[str, Any], declared: Mapping[str, Any]) -> Read:
    """The function that reads a single value, of a type that is the declared one or is promoted to it."""
    type_, logical = declared["type"], logical_of(declared)
    if logical == "decimal":
        return _decimal(_bytes_of(written), decimal_of(written) if logical_of(written) else None, declared)
    if logical == "uuid":
        return _uuid_of_bytes if type_ == "fixed" else _uuid(_text_of(written))
    if logical == "date":
        return DATE_OF
    if logical is not None and "-" in logical and logical != "big-decimal":
        return _time(logical_of(written) or logical, logical)
    if type_ in ("float", "double"):
        return _fraction(type_) if written["type"] in ("int", "long") else _same
    if type_ == "enum":
        return _symbol(written, declared)
    if type_ == "boolean":
        return _boolean
    if type_ == "string":
        return _text_of(written)
    if type_ == "bytes":
        return _bytes_of(written)
    return INT_OF if written["type"] == "int" else _same


def _same(value: Any) -> Any:
    return value


def _null(value: Any) -> None:
    return None


def _missing(value: Any) -> NoReturn:
    raise missing()


def _or_null(read: Read, of_null: Read) -> Read:
    if read is _same and of_null is _null:
        return _same
    return lambda value: of_null(value) if value is None else read(value)


def _text(value: str) -> str:
    if not value.isascii():
        try:
            value.encode()
        # Bytes that are no UTF-8 are kept as halves of characters.
        except UnicodeEncodeError:
            raise mistyped(TEXT, value.encode("utf-8", "surrogateescape")) from None
    return value


def _text_of_bytes(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise mistyped(TEXT, value) from None


def _bytes_of_text(value: str) -> bytes:
    return value.encode("utf-8", "surrogateescape")


def _text_of(written: Mapping[str, Any]) -> Read:
    return _text_of_bytes if written["type"] == "bytes" else _text


def _bytes_of(written: Mapping[str, Any]) -> Read:
    return _bytes_of_text if written["type"] == "string" else _same


def _uuid(text: Read) -> Read:
    def read(value: Any) -> Any:
        if _UUID.fullmatch(value := text(value)) is None:
            raise mistyped(_UUID_WORDS, value)
        return value

    return read


def _uuid_of_bytes(value: bytes) -> str:
    return str(UUID(bytes=value))


def _boolean(value: bytes) -> bool:
    if value not in (b"\0", b"\1"):
        raise mistyped(_TYPE_WORDS["boolean"], value)
    return value == b"\1"


def _symbol_of(written: Mapping[str, Any]) -> Read:
    """The symbol of an enum that was written as its number."""
    symbols, words = written["symbols"], _words(written)

    def read(value: int) -> Any:
        if 0 <= value < len(symbols):
            return symbols[value]
        raise mistyped(words, value)

    return read


def _symbol(written: Mapping[str, Any], declared: Mapping[str, Any]) -> Read:
    symbols, words, default = frozenset(declared["symbols"]), _words(declared), declared.get("default")
    symbol_of = _symbol_of(written)

    def read(value: int) -> Any:
        symbol = symbol_of(value)
        if symbol in symbols:
            return symbol
        if default is not None:
            return default
        raise mistyped(words, symbol)

    return symbol_of if symbols.issuperset(written["symbols"]) else read


def _fraction(type_: str) -> Read:
    """Whole numbers that a fraction keeps all digits of."""
    digits, words = (_FLOAT_DIGITS if type_ == "float" else _DOUBLE_DIGITS), f"a whole number that {type_} is exact for"
    limit = 2**digits

    def read(value: int) -> float:
        # Zeros behind need no room.
        if -limit <= value <= limit or (value & -value).bit_length() + digits > abs(value).bit_length():
            return float(value)
        raise mistyped(words, value)

    return read


def _time(written: str, declared: str) -> Read:
    """A number of `written` units as what the column of the `declared` type counts."""
    local, _, unit = declared.rpartition("-")
    is_number = local == "time" or unit == "nanos"
    per_second = _UNITS[written.rpartition("-")[2]]
    ours = _UNITS[unit] if is_number else _UNITS["micros"]
    if is_number:
        low, high = (-(2**31), 2**31 - 1) if unit == "millis" else (-(2**63), 2**63 - 1)
        words = INT if unit == "millis" else BIGINT
    else:
        low, high, words = FIRST_MICRO, LAST_MICRO, INSTANT
    if ours >= per_second:
        factor = ours // per_second

        def longer(value: int) -> int:
            if low <= (count := value * factor) <= high:
                return count
            raise mistyped(words, value)

        return longer
    divisor = per_second // ours

    def shorter(value: int) -> int:
        count, rest = divmod(value, divisor)
        if low <= count <= high and not rest:
            return count
        raise mistyped(f"{words} in whole microseconds", value, written)

    return shorter


def _decimal(content: Read, theirs: tuple[int, int] | None, declared: Mapping[str, Any]) -> Read:
    """Unscaled numbers, in two's complement and the byte of the sign first, that have no more digits than declared."""
    precision, scale = decimal_of(declared) or (0, 0)
    written = scale if theirs is None else theirs[1]
    factor, divisor = 10 ** max(scale - written, 0), 10 ** max(written - scale, 0)
    bound, words = 10**precision, _words(declared)
    most_bits = (bound * divisor).bit_length()

    def read(value: Any) -> Decimal:
        value = content(value)
        unscaled = int.from_bytes(value, signed=True)
        # Nothing longer can fit, and arithmetic with millions of digits takes minutes.
        if unscaled.bit_length() <= most_bits:
            count, rest = divmod(unscaled * factor, divisor)
            if not rest and -bound < count < bound:
                return _EXACT.scaleb(Decimal(count), -scale)
        is_short = unscaled.bit_length() <= _MOST_BITS
        raise mistyped(words, _EXACT.scaleb(Decimal(unscaled), -written) if is_short else value)

    return read


def _array(element: Read) -> Read:
    if element is _same:
        return _same

    def read(value: Sequence[Any]) -> list[Any]:
        elements: list[Any] = []
        try:
            for each in value:
                elements.append(element(each))
        except Wrong as error:
            raise error.below(f"[{len(elements)}]") from None
        return elements

    return read


def _map(inner: Read) -> Read:
    def read(entries: Sequence[Mapping[str, Any]]) -> list[tuple[str, Any]]:
        made: dict[str, Any] = {}
        for entry in entries:
            key = entry["key"]
            try:
                if key in made:
                    # Which of them is meant nobody can tell, and every reader takes another one.
                    raise Wrong("type", "", "is there more than once")
                made[_text(key)] = inner(entry["value"])
            except Wrong as error:
                raise error.below(f"[{shown(key)}]") from None
        return [*made.items()]

    return read


def _of_entries(entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {entry["key"]: entry["value"] for entry in entries}


def _struct(fields: Sequence[_Field]) -> Read:
    if all(field.read is _same and field.written == field.name for field in fields):
        return _same

    def read(record: Mapping[str, Any]) -> dict[str, Any]:
        values = {}
        for field in fields:
            try:
                values[field.name] = field.of(record)
            except Wrong as error:
                raise error.below(f".{field.name}") from None
        return values

    return read
