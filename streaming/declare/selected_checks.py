"""What a selection may be given: columns that there are, conditions that are true or false, names that are free."""

from __future__ import annotations

from collections.abc import Mapping

from streaming.base import (
    DeclarationError,
    Types,
    check_column_name,
    check_condition,
    check_kind,
    check_mapping,
    check_name,
    check_tuple,
    check_type,
    check_value,
)
from streaming.declare.functions import RowFunction
from streaming.declare.side import Side
from streaming.declare.stream import Stream

_TAKEN = ("current", "log", "clock", "rejected", "next")
"""What is shown of any operator under these names, and where its tables are built anew."""


def check_selected_types(given: Mapping[str, object]) -> None:
    """Refuse a value of another type than a selection asks for; `given` holds its fields by name.

    Raises:
        DeclarationError: with the value, and what to write.
    """
    of, advice = f"of selection {given['name']!r}", "the stream that it reads, or a tuple of several"
    check_type(f"of= {of}", given["of"], (Stream, tuple), advice)
    if isinstance(given["of"], tuple):
        check_tuple(f"of= {of}", given["of"], Stream, advice)
        if not given["of"]:
            raise DeclarationError(f"of= {of} is empty; write {advice}.")
    check_mapping(f"sides {of}", given["sides"], Side, "a dict such as {'large': Side(where='n > 1000')}")
    if given["function"] is not None:
        check_type(f"function {of}", given["function"], RowFunction, "RowFunction(apply, returns='n bigint')")


def check_side_names(name: str, sides: Mapping[str, Side]) -> None:
    """Refuse a side output with a name that means something else.

    Raises:
        DeclarationError: with the names that are taken.
    """
    for side in sides:
        check_name("side output", side)
        if side in _TAKEN:
            raise DeclarationError(
                f"side output {side!r} of selection {name!r} has a name that is taken ({', '.join(_TAKEN)}); rename it."
            )


def check_side(what: str, side: Side, types: Types, added: Types) -> dict[str, str | None]:
    """Refuse an output that reads what there is not; returns the Spark types of its columns, None where not known.

    `types` are the columns of the stream, `added` those of the log that SQL may read as well.

    Raises:
        DeclarationError: with the expression, and what to write.
    """
    readable: dict[str, str | None] = {**types, **added, **_exploded(what, side, {**types, **added})}
    if side.where is not None:
        check_condition(f"where of {what}", side.where, readable)
    columns = "a tuple of columns, or a dict from name to SQL, such as {'twice': 'n * 2'}"
    if isinstance(side.select, Mapping):
        check_mapping(f"select of {what}", side.select, str, columns)
    elif side.select is not None:
        check_tuple(f"select of {what}", side.select, str, columns)
    if side.select is not None and not side.select:
        raise DeclarationError(f"select of {what} names no column; leave it out to keep all.")
    selected = side.selected(tuple(types))
    for name in selected:
        check_column_name(name)
    lower = [name.lower() for name in (side.select or ())]
    if repeated := sorted({name for name in lower if lower.count(name) > 1}):
        raise DeclarationError(f"select of {what} has {', '.join(map(repr, repeated))} twice; name each column once.")
    return {name: check_value(f"column {name!r} of {what}", sql, readable) for name, sql in selected.items()}


def _exploded(what: str, side: Side, readable: Types) -> dict[str, str | None]:
    """The name of an element, with its type."""
    if side.explode is None:
        return {}
    advice = "a dict of one name and the SQL of an array, such as {'word': \"split(text, ' ')\"}"
    check_mapping(f"explode of {what}", side.explode, str, advice)
    if len(side.explode) != 1:
        raise DeclarationError(f"explode of {what} has {len(side.explode)} entries; write {advice}.")
    ((name, sql),) = side.explode.items()
    check_column_name(name)
    if name.lower() in {column.lower() for column in readable}:
        raise DeclarationError(f"explode of {what} names its elements {name!r}, which is a column already; rename it.")
    check_kind(f"explode of {what}", sql, readable, "array", advice)
    array = check_value(f"explode of {what}", sql, readable) or ""
    return {name: array[len("array<") : -1] if array.startswith("array<") else None}
