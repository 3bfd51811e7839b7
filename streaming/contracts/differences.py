"""Differences of two contracts of one table, and which of them break somebody who reads or writes it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

import sqlglot
from sqlglot import exp

from streaming.base import interval
from streaming.contracts.terms import Asked, Terms
from streaming.contracts.types import plain_type

Breaks = Literal["readers", "writers", "nobody"]
"""Those who have to change something: who reads the table, or who writes what comes into it."""

_WIDER = {
    "tinyint": ("smallint", "int", "bigint"),
    "smallint": ("int", "bigint"),
    "int": ("bigint", "double"),
    "float": ("double",),
}
"""The types that hold each value of a type exactly."""


@dataclass(frozen=True)
class Difference:
    """One difference: whom it `breaks`, in words, and the column that it is about, empty for none.

    `type` is the column's new type, where it has another one; `is_gone` is true of a column that there is no more.
    """

    breaks: Breaks
    text: str
    column: str = ""
    type: str | None = None
    is_gone: bool = False


def differences(before: Terms, after: Terms) -> tuple[Difference, ...]:
    """The differences of `after` from `before`: columns first, in the order of the older file."""
    before, after = _with_required(before), _with_required(after)
    return (
        *_of_columns(before, after),
        *_of_keys(before, after),
        *_of_conditions(before, after),
        *_of_checks(before, after),
        *_of_promises(before, after),
    )


def _with_required(terms: Terms) -> Terms:
    """The terms with a column required where a rule says that it is not null, and without that rule."""
    said = {_said(f"`{column.name}` is not null"): column.name for column in terms.columns}
    rules = [each for each in terms.conditions if each.severity == "error" and _said(each.condition) in said]
    named = {said[_said(each.condition)] for each in rules}
    columns = (replace(each, required=each.required or each.name in named) for each in terms.columns)
    conditions = (each for each in terms.conditions if each not in rules)
    return replace(terms, columns=tuple(columns), conditions=tuple(conditions))


def _of_columns(before: Terms, after: Terms) -> Iterator[Difference]:
    for column in before.columns:
        now = after.column(column.name)
        if now is None:
            yield Difference("readers", f"column {column.name!r} is gone", column.name, is_gone=True)
            continue
        if plain_type(now.type) != plain_type(column.type):
            yield from _of_types(column.name, column.type, now.type)
        if now.required and not column.required:
            yield Difference(
                "writers", f"column {column.name!r} is required: rows without it are rejected", column.name
            )
        if column.required and not now.required:
            yield Difference("readers", f"column {column.name!r} may be null, and never was", column.name)
    for column in after.columns:
        if before.column(column.name) is None:
            breaks: Breaks = "writers" if column.required else "nobody"
            wanted = ", and required: rows without it are rejected" if column.required else ""
            yield Difference(breaks, f"column {column.name!r} {plain_type(column.type)} is new{wanted}", column.name)
    olds, news = dict(before.fields), dict(after.fields)
    for name in (column.name for column in before.columns if after.column(column.name) is not None):
        was, field = olds.get(name, name), news.get(name, name)
        if was != field:
            text = f"column {name!r} is read from the field {field!r} of a payload, and was from {was!r}"
            yield Difference("writers", text, name)


def _of_types(name: str, was: str, now: str) -> Iterator[Difference]:
    wider, before, after = _is_wider(was, now), _required_parts(was), _required_parts(now)
    reads = wider and not any(required and after.get(part) is False for part, required in before.items())
    writes = wider and not any(
        # A part that is new has to come only where what it is a part of came before.
        required and not before.get(part) and part[:-1] in before
        for part, required in after.items()
    )
    what = f"column {name!r} is {plain_type(now)}, and was {plain_type(was)}"
    if not reads:
        yield Difference("readers", what, name, now)
    elif writes:
        yield Difference("nobody", f"{what}, which has all its values", name, now)
    # Payloads are written by others: a narrower type rejects what came through before.
    if not writes:
        yield Difference("writers", f"{what}: values of the old type may be rejected", name)


def _required_parts(type_: str) -> dict[tuple[str, ...], bool]:
    """The parts of a type at any depth by their paths, each with true where it is never null; the whole has none."""

    def parts(of: exp.DataType, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], bool]]:
        yield path, False
        for number, each in enumerate(of.expressions if of.this in _NESTED else ()):
            if isinstance(each, exp.ColumnDef) and each.kind is not None:
                yield from parts(each.kind, (*path, each.name))
                kinds = (constraint.kind for constraint in each.args.get("constraints") or ())
                yield (*path, each.name), any(isinstance(kind, exp.NotNullColumnConstraint) for kind in kinds)
            else:
                yield from parts(each, (*path, str(number)))

    return dict(parts(exp.DataType.build(plain_type(type_), dialect="spark"), ()))


_NESTED = (exp.DataType.Type.STRUCT, exp.DataType.Type.ARRAY, exp.DataType.Type.MAP)


def _of_keys(before: Terms, after: Terms) -> Iterator[Difference]:
    if before.contract.key != after.contract.key:
        was, now = (", ".join(terms.contract.key) or "none" for terms in (before, after))
        yield Difference("readers" if before.contract.key else "writers", f"the primary key is {now}, and was {was}")
    for name in before.unique:
        if name not in after.unique and (name,) != after.contract.key:
            yield Difference("readers", f"column {name!r} need not be unique any more", name)
    for name in after.unique:
        if name not in before.unique:
            yield Difference("writers", f"column {name!r} must be unique", name)
    if before.event_time != after.event_time and None not in (before.event_time, after.event_time):
        yield Difference("readers", f"the event time is {after.event_time!r}, and was {before.event_time!r}")


def _of_conditions(before: Terms, after: Terms) -> Iterator[Difference]:
    """Rules by what they say, whatever their names; those about a column that is gone have gone with it."""
    gone = {column.name for column in before.columns if after.column(column.name) is None}
    old = {_said(each.condition): each for each in before.conditions}
    new = {_said(each.condition): each for each in after.conditions}
    for said, each in old.items():
        if _is_about(each.condition, gone):
            continue
        if said not in new:
            yield Difference(
                "readers", f"rule {each.name!r} is gone: rows of which {each.condition} is false come through"
            )
        elif each.severity == "error" and new[said].severity == "warning":
            yield Difference("readers", f"rule {each.name!r} only warns: rows that break it come through")
        elif each.severity == "warning" and new[said].severity == "error":
            yield Difference("writers", f"rule {each.name!r} rejects, and only warned")
    for said, each in new.items():
        if said not in old:
            breaks: Breaks = "writers" if each.severity == "error" else "nobody"
            yield Difference(breaks, f"rule {each.name!r} is new: {each.condition}")


def _of_checks(before: Terms, after: Terms) -> Iterator[Difference]:
    old, new = ({(each.query, each.expected): each for each in terms.contract.checks} for terms in (before, after))
    for each, now in ((old[said], new[said]) for said in old if said in new):
        if each.severity == "error" and now.severity == "warning":
            yield Difference("readers", f"check {each.name!r} only warns, and closes no gate")
        elif each.severity == "warning" and now.severity == "error":
            yield Difference("writers", f"check {each.name!r} closes the gate, and only warned")
    gone = {column.name for column in before.columns if after.column(column.name) is None}
    for said, each in old.items():
        if said not in new and not _is_about(each.query, gone):
            yield Difference("readers", f"check {each.name!r} is gone: {each.query} {each.expected}")
    for said, each in new.items():
        if said not in old:
            breaks: Breaks = "writers" if each.severity == "error" else "nobody"
            yield Difference(breaks, f"check {each.name!r} is new: {each.query} {each.expected}")


def _of_promises(before: Terms, after: Terms) -> Iterator[Difference]:
    yield from _of_length("freshness", _within(before.freshness), _within(after.freshness), longer_breaks=True)
    by = [set() if terms.freshness is None else {*terms.freshness.by} for terms in (before, after)]
    for name in sorted(by[0] - by[1]):
        yield Difference("readers", f"freshness is not asked of each {name!r} any more", name)
    yield from _of_length("retention", before.retention, after.retention, longer_breaks=False)
    one, other = before.contract, after.contract
    if one.status != other.status:
        breaks: Breaks = "readers" if other.status in ("deprecated", "retired") else "nobody"
        yield Difference(breaks, f"the status is {other.status}, and was {one.status}")
    if one.owners != other.owners:
        now, was = (", ".join(owners) or "nobody" for owners in (other.owners, one.owners))
        yield Difference("nobody", f"the owners are {now}, and were {was}")


def _of_length(what: str, was: str | None, now: str | None, *, longer_breaks: bool) -> Iterator[Difference]:
    """A freshness breaks readers where it gets longer, or is not promised any more; a retention where it begins."""
    if was == now or (was is not None and now is not None and interval(was) == interval(now)):
        return
    if was is None or now is None:
        breaks = now is None if longer_breaks else was is None
    else:
        breaks = (interval(now) > interval(was)) == longer_breaks
    text = f"the {what} is {now or 'not limited'}, and was {was or 'not limited'}"
    yield Difference("readers" if breaks else "nobody", text)


def _within(asked: Asked | None) -> str | None:
    return None if asked is None else asked.within


def is_compatible(found: Iterable[Difference]) -> bool:
    """True if none of the differences breaks anybody."""
    return all(each.breaks == "nobody" for each in found)


def _is_about(query: str, columns: set[str]) -> bool:
    """True if SQL names one of the columns."""
    try:
        named = {column.name.lower() for column in sqlglot.parse_one(query, dialect="spark").find_all(exp.Column)}
    except sqlglot.errors.SqlglotError:
        return False
    return bool(named & {column.lower() for column in columns})


def _said(condition: str) -> str:
    """A condition without the accidents of its spelling."""
    try:
        tree = sqlglot.parse_one(condition, dialect="spark")
    except sqlglot.errors.SqlglotError:
        return condition
    for name in tree.find_all(exp.Identifier):
        name.set("quoted", False)
    return tree.sql("spark", normalize=True).lower() if not tree.find(exp.Literal) else tree.sql("spark")


def _is_wider(was: str, now: str) -> bool:
    """True if each value of the old type is one of the new type: numbers by their digits, structs by their fields."""
    was, now = plain_type(was), plain_type(now)
    if was == now or now in _WIDER.get(was, ()):
        return True
    one, other = (sqlglot.exp.DataType.build(each, dialect="spark") for each in (was, now))
    kinds = exp.DataType.Type
    if one.this == other.this == kinds.DECIMAL:
        (digits, scale), (more, finer) = ([int(each.name) for each in type_.expressions] for type_ in (one, other))
        return finer >= scale and more - finer >= digits - scale
    if other.this == kinds.DECIMAL and was in _DIGITS:
        more, finer = (int(each.name) for each in other.expressions)
        return more - finer >= _DIGITS[was]
    if one.this == other.this == kinds.STRUCT:
        olds, news = ({each.name: each.kind.sql("spark") for each in type_.expressions} for type_ in (one, other))
        return all(name in news and _is_wider(type_, news[name]) for name, type_ in olds.items())
    if one.this == other.this and one.this in (kinds.ARRAY, kinds.MAP):
        pairs = zip(one.expressions, other.expressions, strict=True)
        return all(_is_wider(each.sql("spark"), wider.sql("spark")) for each, wider in pairs)
    return False


_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
"""The digits that the greatest value of a whole number has."""
