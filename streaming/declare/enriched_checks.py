"""What an enrichment may be given: a call that can be found, answers of declared types, names that are free."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from streaming.base import (
    DeclarationError,
    Types,
    arrow_schema,
    check_choice,
    check_column_name,
    check_mapping,
    check_number,
    check_tuple,
    check_type,
    encoder,
    interval,
)
from streaming.declare.callables import check_callable
from streaming.declare.keyed_checks import check_keys_are_exact
from streaming.declare.stream import Stream

_CHOICES = {"order": ("arrival", "as they come"), "on_failure": ("side", "null", "default")}


def check_enriched_types(given: Mapping[str, object]) -> None:
    """Refuse a value of another type than an enrichment asks for; `given` holds its fields by name.

    Raises:
        DeclarationError: with the value, and what to write.
    """
    of = f"of enrichment {given['name']!r}"
    check_type(f"of= {of}", given["of"], Stream, "the stream whose rows it asks for")
    check_callable(f"call {of}", given["call"])
    if given["opens"] is not None:
        check_callable(f"opens {of}", given["opens"])
    check_mapping(f"result {of}", given["result"], str, "a dict from column to type, such as {'room': 'string'}")
    check_mapping(f"default {of}", given["default"], object, "a dict such as {'room': 'UNKNOWN ROOM'}")
    check_tuple(f"key {of}", given["key"], str, "a tuple of columns, such as ('id',), or () for each row by itself")
    for what, valid in _CHOICES.items():
        check_choice(what, given[what], of, valid)
    check_number(f"version={given['version']!r} {of}", given["version"], "version")
    check_number(f"retries={given['retries']!r} {of}", given["retries"], "number of retries", least=0)
    if given["capacity"] is not None:
        check_number(f"capacity={given['capacity']!r} {of}", given["capacity"], "number of calls")
    for length in (given["timeout"], given["cache"], given["every"]):
        if length is not None:
            interval(str(length))


def check_answers(name: str, result: Mapping[str, str], default: Mapping[str, object], on_failure: str) -> None:
    """Refuse an answer without columns, and defaults that are none of it, do not fit, or are needed and not there.

    Raises:
        DeclarationError: with the columns that there are.
    """
    if not result:
        raise DeclarationError(f"result of enrichment {name!r} is empty; write what a call answers with.")
    for column in result:
        check_column_name(column)
    schema = answer_schema(result)
    if unknown := [column for column in default if column not in result]:
        raise DeclarationError(
            f"default of enrichment {name!r} has {', '.join(map(repr, unknown))}, which no call answers with; columns "
            f"of the result are: {', '.join(result)}."
        )
    for column, value in default.items():
        try:
            encoder(schema.field(column).type)(value)
        except ValueError as error:
            raise DeclarationError(
                f"default of enrichment {name!r} has {value!r} for {column!r}, which is a {result[column]}: {error}; "
                "correct it."
            ) from error
    if on_failure == "default" and not default:
        raise DeclarationError(
            f"on_failure='default' of enrichment {name!r} needs one; write default={{{next(iter(result))!r}: ...}}."
        )


def answer_schema(result: Mapping[str, str]) -> pa.Schema:
    """What a call answers with, in Arrow's types.

    Raises:
        DeclarationError: a type that a table here cannot keep.
    """
    return arrow_schema(", ".join(f"`{name}` {type_}" for name, type_ in result.items()))


def check_asked_by(name: str, key: tuple[str, ...], types: Types, cache: str | None) -> None:
    """Refuse a key that is none of the selected columns or is not exact, and a cache of answers that have no key.

    Raises:
        DeclarationError: with what to key by instead.
    """
    check_keys_are_exact(f"key of enrichment {name!r}", key, types)
    if cache is not None and not key:
        raise DeclarationError(
            f"cache={cache!r} of enrichment {name!r} keeps answers for a key, and there is none; name the columns that "
            "an answer follows from, such as key=('id',)."
        )


def check_names_free(name: str, selected: Mapping[str, object], added: Mapping[str, tuple[str, ...]]) -> None:
    """Refuse a selected column with the name of one that is `added` to a table.

    Raises:
        DeclarationError: with the name, and how to select it under another.
    """
    taken = {column.lower(): what for what, columns in added.items() for column in columns}
    for column in selected:
        if column.lower() in taken:
            raise DeclarationError(
                f"select of enrichment {name!r} has {column!r}, which is also a column of {taken[column.lower()]}; "
                f"select it under another name, such as select={{'its_{column}': '{column}'}}."
            )
