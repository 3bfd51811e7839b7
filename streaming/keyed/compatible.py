"""Which older declarations a keyed function goes on from, and if their state is migrated or taken over as it is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa

from streaming.base import arrow_schema
from streaming.declare import Keyed, described
from streaming.keyed.schemas import CopiesRows

_STATE, _FUNCTION, _TIMER, _RESULT = "state", "function", "timer", "result"
_OUTPUTS, _ON_ERROR = "side output", "on error"


def counts_as(keyed: Keyed, makes: dict[str, Any]) -> dict[str, Any]:
    """The fingerprint `makes` of an older declaration, taken for today's as far as today's goes on from its state."""
    declared = keyed.fingerprint
    if copied_fewer_columns(keyed, makes):
        makes = {**makes, **{part: declared[part] for part in (_FUNCTION, _STATE, _RESULT, _OUTPUTS)}}
    if added_outputs(keyed, makes):
        makes = {**makes, _OUTPUTS: declared[_OUTPUTS]}
    if keyed.diverts and not keyed.corrected:
        # A row that failed was never passed before, so that the output for such rows lacks none.
        makes = {**makes, _ON_ERROR: declared[_ON_ERROR]}
    if is_migrated(keyed, makes):
        return {**makes, _STATE: declared[_STATE], _FUNCTION: declared[_FUNCTION], _TIMER: declared[_TIMER]}
    if _STATE in makes and _takes_over(_schema(makes[_STATE]), keyed.state_schema):
        return {**makes, _STATE: declared[_STATE]}
    return makes


def copied_fewer_columns(keyed: Keyed, makes: dict[str, Any]) -> bool:
    """True if a declaration with the fingerprint `makes` differs only in columns of whole rows that it lacked."""
    if not isinstance(keyed.on_row, CopiesRows) or not {_FUNCTION, _STATE, _RESULT, _OUTPUTS} <= makes.keys():
        return False
    columns = tuple(name for name in _schema(makes[_RESULT]).names if name in keyed.on_row.columns)
    function = f"{described(replace(keyed.on_row, columns=columns))} version {keyed.version}"
    if makes[_FUNCTION] != function or makes[_OUTPUTS].keys() != keyed.sides.keys():
        return False
    tables = [(makes[_STATE], keyed.state), (makes[_RESULT], keyed.result)]
    tables += [(ddl, keyed.sides[name]) for name, ddl in makes[_OUTPUTS].items()]
    return all(_has_fields_of(_schema(old), _schema(new)) for old, new in tables)


def is_migrated(keyed: Keyed, makes: dict[str, Any]) -> bool:
    """True if `migrate` makes today's state of the one that a declaration with the fingerprint `makes` left.

    The version was raised, and no timer is gone that a key may wait for; or the state alone is another one.
    """
    if keyed.migrate is None or not {_STATE, _FUNCTION, _TIMER} <= makes.keys():
        return False
    if version_of(makes) < keyed.version:
        return bool(makes[_TIMER].keys() <= keyed.timers.keys())
    same = all(makes[part] == keyed.fingerprint[part] for part in (_FUNCTION, _TIMER))
    return same and _schema(makes[_STATE]) != keyed.state_schema


def added_outputs(keyed: Keyed, makes: dict[str, Any]) -> list[str]:
    """The side outputs that an older declaration with the fingerprint `makes` did not have; they begin with a step.

    Empty where one of its own is gone or has other columns, and where late rows are corrected: of the days that are,
    the new outputs would lack what the others have.
    """
    before = makes.get(_OUTPUTS, keyed.sides)
    if keyed.corrected or any(keyed.sides.get(name) != ddl for name, ddl in before.items()):
        return []
    return [name for name in keyed.sides if name not in before]


def is_of_today(keyed: Keyed, makes: dict[str, Any]) -> bool:
    """True if the state that a declaration with the fingerprint `makes` left is today's."""
    same = makes.get(_FUNCTION, keyed.fingerprint[_FUNCTION]) == keyed.fingerprint[_FUNCTION]
    return bool(same and _schema(makes.get(_STATE, keyed.state)) == keyed.state_schema)


def version_of(makes: dict[str, Any]) -> int:
    """The version of the function in a fingerprint."""
    return int(str(makes[_FUNCTION]).rpartition(" ")[2])


def added_fields(keyed: Keyed, state: str) -> list[str]:
    """The fields that today's state has, and the one declared as `state` had not."""
    before = _schema(state).names
    return [name for name in keyed.state_schema.names if name not in before]


def _schema(state: str) -> pa.Schema:
    return arrow_schema(state) if state.strip() else pa.schema([])


def _takes_over(old: pa.Schema, new: pa.Schema) -> bool:
    """True if each old field is there, and its type takes every value of the old one."""
    return all(field.name in new.names and _is_as_wide(field.type, new.field(field.name).type) for field in old)


def _has_fields_of(old: pa.Schema | pa.StructType, new: pa.Schema | pa.StructType) -> bool:
    """True if each old field is there, of the type that it had; a struct may have more fields."""
    there = {field.name: field.type for field in new}
    return all(
        _has_fields_of(field.type, there[field.name])
        if pa.types.is_struct(field.type) and pa.types.is_struct(there.get(field.name))
        else there.get(field.name) == field.type
        for field in old
    )


def _is_as_wide(old: pa.DataType, new: pa.DataType) -> bool:
    if pa.types.is_signed_integer(old) and pa.types.is_signed_integer(new):
        return bool(new.bit_width >= old.bit_width)
    if pa.types.is_decimal(old) and pa.types.is_decimal(new):
        return bool(new.scale >= old.scale and new.precision - new.scale >= old.precision - old.scale)
    if pa.types.is_list(old) and pa.types.is_list(new):
        return _is_as_wide(old.value_type, new.value_type)
    if pa.types.is_map(old) and pa.types.is_map(new):
        return bool(old.key_type == new.key_type) and _is_as_wide(old.item_type, new.item_type)
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        same = [field.name for field in old] == [field.name for field in new]
        return same and all(_is_as_wide(each.type, of.type) for each, of in zip(old, new, strict=True))
    return bool(old == new)
