"""Masks of values that no table, log or error may ever show, and what a stream keeps in their place."""

from __future__ import annotations

import hmac
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import sqlglot
from sqlglot import exp

from streaming.base import ORIGIN, DeclarationError, SettingsError, names_variables_only, settle, variables_in

MASKED, WITHHELD = "masked", "withheld"
MASKED_LABELS = (MASKED, WITHHELD)
"""The beginnings of the last reason against a rejected row: its values were masked, or its payload is not there, too.

They say what was done to a row and not why it was rejected, so they are counted nowhere.
"""

MaskValue = Callable[[bytes], bytes | None]
"""Gives what is kept in place of a value, both as bytes; None where nothing is kept."""

_SHORTEST_SALT = 16
_CHECKED = b"tidemark: which salt is this"
_STARS = b"****"


class Mask(ABC):
    """A way to keep something else in place of the values of a column."""

    keeps_identity = False
    """True if two values are the same where their masked values are, and only there."""

    of_texts_only = True
    """True if only texts, and arrays of texts, can be masked so."""

    @property
    def variable(self) -> str | None:
        """The variable of the environment that the mask needs; None where it needs none."""
        return None

    def __str__(self) -> str:
        """The mask in words, by which two are told apart; it is written to the log, so it holds no secret."""
        return type(self).__name__

    @abstractmethod
    def resolved(self) -> MaskValue:
        """The function that masks a value; it can be pickled, and shows no salt.

        Raises:
            SettingsError: a variable is not set, or has a value that is too short.
        """


@dataclass(frozen=True)
class Hash(Mask):
    """Keeps HMAC-SHA-256 of a text in UTF-8, as 64 hexadecimal digits: equal values stay equal, and can be joined.

    `salt` names a variable of the environment, such as `"${SALT}"`, whose value of at least 16 characters is the key of
    the HMAC. It is never written down; the log has a check of it, so that another value of that variable is refused.

    Raises:
        DeclarationError: the salt is not the name of one variable.
    """

    salt: str
    keeps_identity = True

    def __post_init__(self) -> None:
        settle(self, "Hash")
        if not names_variables_only(self.salt) or len(variables_in(self.salt)) != 1:
            raise DeclarationError(
                "the salt of Hash is written out",
                "name a variable of the environment in its place, such as Hash(salt='${SALT}'), so that the "
                "declaration holds no secret.",
                field="salt",
            )

    @property
    def variable(self) -> str:
        """The variable that has the salt."""
        return variables_in(self.salt)[0]

    def __str__(self) -> str:
        return f"Hash({self.salt})"

    def resolved(self) -> MaskValue:
        return Hashed(salt_of(self.variable))


@dataclass(frozen=True)
class Last(Mask):
    """Keeps `****` and the last `count` characters of a text; of one that has no more than these, `****` alone.

    Raises:
        DeclarationError: the count is less than 1.
    """

    count: int

    def __post_init__(self) -> None:
        settle(self, "Last")
        if self.count < 1:
            raise DeclarationError(
                f"count={self.count!r} of Last keeps nothing",
                "write how many characters are kept, such as Last(4), or Drop() to keep none.",
                field="count",
                value=self.count,
            )

    def __str__(self) -> str:
        return f"Last({self.count})"

    def resolved(self) -> MaskValue:
        return Tail(self.count)


@dataclass(frozen=True)
class Drop(Mask):
    """Keeps nothing: the value is null, whatever its type."""

    of_texts_only = False

    def resolved(self) -> MaskValue:
        return nothing


@dataclass(frozen=True)
class Hashed:
    """A `MaskValue`: the hexadecimal HMAC-SHA-256 of a value."""

    key: bytes = field(repr=False)

    def __call__(self, value: bytes) -> bytes:
        return hmac.digest(self.key, value, "sha256").hex().encode()


@dataclass(frozen=True)
class Tail:
    """A `MaskValue`: stars and the last characters of a text."""

    count: int

    def __call__(self, value: bytes) -> bytes:
        text = value.decode("utf-8", "replace")
        return _STARS + (text[-self.count :].encode() if len(text) > self.count else b"")


def nothing(value: bytes) -> None:
    """A `MaskValue`: nothing at all."""
    return None


def salt_of(variable: str) -> bytes:
    """The salt that a variable of the environment has.

    Raises:
        SettingsError: it is not set, or is too short to be one.
    """
    value = os.environ.get(variable, "")
    if len(value) < _SHORTEST_SALT:
        problem = f"has {len(value)} characters" if value else "is not set"
        raise SettingsError(
            f"the salt of masked values is to be in the variable {variable!r}, which {problem}",
            f"set it to at least {_SHORTEST_SALT} random characters, always the same, in the environment of every "
            "process that reads the source. Nothing was read.",
            field=variable,
        )
    return value.encode()


def check_of(variable: str) -> str:
    """A text by which the salt in a variable is known again, and from which nobody can tell it.

    Raises:
        SettingsError: as `salt_of`.
    """
    return hmac.digest(salt_of(variable), _CHECKED, "sha256")[:8].hex()


def check_masks(stream: str, masked: Mapping[str, Mask], types: Mapping[str, str | None], origin: str) -> None:
    """Refuse masks of what is no column, or no text where one is needed; `types` are those of the columns.

    `origin` is the type of the origins that the source tells.

    `_origin.key` and `_origin.headers` are those of a record of Kafka.

    Raises:
        DeclarationError: with what to write.
    """
    for path, mask in masked.items():
        name, *within = path.split(".")
        if path in ORIGIN_TYPES:
            told = _type_at(exp.DataType.build(origin, dialect="spark"), within)
            kind = None if told is None else exp.DataType.build(ORIGIN_TYPES[path], dialect="spark")
        elif name not in types:
            raise DeclarationError(
                f"masked of stream {stream!r} has {path!r}, and there is no column {name!r}",
                f"columns are: {', '.join(types)}; a field of a struct is written 'column.field'.",
                field="masked",
                value=path,
                stream=stream,
                choices=tuple(types),
            )
        else:
            type_ = types[name]
            kind = None if type_ is None else _type_at(exp.DataType.build(type_, dialect="spark"), within)
        if kind is None and (within or mask.of_texts_only):
            raise DeclarationError(
                f"masked of stream {stream!r} has {path!r}, and {name!r} of type {types.get(name, origin)} has no such "
                "field, or nobody can tell its type",
                "name a column, or a field of a struct or of an array of structs, such as 'customer.email'.",
                field="masked",
                value=path,
                stream=stream,
            )
        if kind is not None and mask.of_texts_only and not _is_text(kind):
            raise DeclarationError(
                f"masked of stream {stream!r} has {type(mask).__name__} for {path!r}, of type "
                f"{kind.sql('spark').lower()}, and only a text can be masked so",
                "declare it as string, or use Drop().",
                field="masked",
                value=path,
                stream=stream,
            )
        outer = next((each for each in masked if path.startswith(f"{each}.")), None)
        if outer is not None:
            raise DeclarationError(
                f"masked of stream {stream!r} has {path!r}, which lies in {outer!r}",
                "leave out one of the two.",
                field="masked",
                value=path,
                stream=stream,
            )


ORIGIN_TYPES: Mapping[str, str] = {
    "_origin.key": "string",
    "_origin.headers": "array<struct<key: string, value: binary>>",
}
"""The parts of the origin of a record that can be masked, and as which type."""


def origins_read(expression: str, paths: Iterable[str]) -> list[str]:
    """The parts of the origin, of these `paths`, that an SQL expression reads, alone or with the whole origin."""
    read: set[str] = set()
    for column in sqlglot.parse_one(expression, dialect="spark").find_all(exp.Column):
        name, *within = (part.name.lower() for part in column.parts)
        if name == ORIGIN:
            read |= {*paths} if not within or within[0] == "*" else {f"{ORIGIN}.{within[0]}"}
    return [path for path in paths if path in read]


def reads_all(expression: str) -> bool:
    """True if an SQL expression such as `to_json(struct(*))` reads all columns there are, without their names."""
    stars = sqlglot.parse_one(expression, dialect="spark").find_all(exp.Star)
    return any(not isinstance(star.parent, exp.Column | exp.Count) for star in stars)


def _is_text(kind: exp.DataType) -> bool:
    if kind.this == exp.DataType.Type.ARRAY:
        return _is_text(kind.expressions[0])
    return kind.this == exp.DataType.Type.TEXT


def _type_at(kind: exp.DataType, within: list[str]) -> exp.DataType | None:
    """The type at the end of a path, also through arrays; None where there is none."""
    for name in within:
        while kind.this == exp.DataType.Type.ARRAY:
            kind = kind.expressions[0]
        fields = {each.name: each.args["kind"] for each in kind.expressions} if _is_struct(kind) else {}
        if name not in fields:
            return None
        kind = fields[name]
    return kind


def _is_struct(kind: exp.DataType) -> bool:
    return bool(kind.this == exp.DataType.Type.STRUCT)
