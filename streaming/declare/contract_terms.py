"""The terms that a declared stream or operator gives to those who read it, of which a data contract is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from streaming.base import ContractError, sql
from streaming.contracts import Asked, Check, Condition, Contract, Terms, unique_check
from streaming.declare.contracted import required_rule
from streaming.declare.freshness import freshness_of
from streaming.declare.operator import CURRENT, Operator
from streaming.declare.stream import Stream

_FIRST_VERSION = "1.0.0"


def terms_of_stream(stream: Stream, owner: str | None = None) -> Terms:
    """The terms of a stream: the columns of its payload, its rules, freshness and retention, whose it is.

    A stream that was declared by a contract goes on with its id and version; of another one these begin here, and the
    pipeline's `owner` owns it.
    """
    contract = stream.contract or Contract(stream.name, _FIRST_VERSION, "active", owners=(owner,) if owner else ())
    if stream.key:
        contract = replace(contract, key=stream.key)
    columns = stream.format.columns
    conditions = [
        Condition(rule.name, rule.condition, "warning" if rule.on_violation == "warn" else "error")
        for rule in stream.rules
    ]
    required = [required_rule(column) for column in columns]
    while stream.key and conditions and (first := next((r for r in required if r.name == conditions[0].name), None)):
        if first.condition != conditions[0].condition:
            break
        name = columns[required.index(first)].name
        columns = tuple(replace(each, required=True) if each.name == name else each for each in columns)
        conditions = conditions[1:]
    unique, checks = _unique(stream, contract)
    freshness = freshness_of(stream.fresh_within)
    return Terms(
        name=stream.name,
        contract=replace(contract, checks=checks),
        columns=columns,
        description=stream.description,
        conditions=tuple(conditions),
        unique=unique,
        fields=tuple(getattr(stream.format, "fields", {}).items()),
        event_time=stream.event_time,
        freshness=None
        if freshness is None
        else Asked(
            freshness.within, freshness.by, *((freshness.retired_after, freshness.named) if freshness.by else ())
        ),
        retention=stream.retention,
    )


def _unique(stream: Stream, contract: Contract) -> tuple[tuple[str, ...], tuple[Check, ...]]:
    """The columns that must be unique, in the order of their checks, and the checks that say something else."""
    names = {unique_check(stream.name, (column.name,)): column.name for column in stream.format.columns}
    of_key = unique_check(stream.name, contract.key) if contract.key else None
    others = tuple(check for check in contract.checks if check != of_key)
    unique = tuple(names[check] for check in others if check in names)
    return unique, tuple(check for check in others if check not in names)


def terms_of_operator(operator: Operator, owner: str, types: Mapping[str, str] | None = None) -> Terms:
    """The terms of what is current of an operator; `types` are those of its table, where the declaration has none.

    Raises:
        ContractError: nobody can tell the type of a column before the table is there.
    """
    types = types or {}
    specs = [spec for spec in operator.columns_of(CURRENT) or operator.columns_of() if not spec.name.startswith("_")]
    unknown = [spec.name for spec in specs if spec.type is None and spec.name not in types]
    if unknown or not specs:
        raise ContractError(
            f"{operator.kind_name} {operator.name!r} has "
            f"{f'column {unknown[0]!r}, whose type' if unknown else 'columns, which'} only its table tells",
            "run its pipeline once, and export the contract then.",
            operator=operator.name,
            column=unknown[0] if unknown else None,
        )
    key = operator.result_key
    columns = tuple(
        sql.Column(spec.name, types.get(spec.name) or spec.type or "", spec.name in key, spec.meaning) for spec in specs
    )
    freshness = freshness_of(getattr(operator, "fresh_within", None))
    times = [column.name for column in columns if column.type == "timestamp"]
    event_time = next((name for name in ("window_end", *operator.times) if name in times), None)
    return Terms(
        name=operator.name,
        contract=Contract(operator.name, _FIRST_VERSION, "active", tuple(key), (owner,)),
        columns=columns,
        description=getattr(operator, "description", "") or "",
        event_time=event_time,
        freshness=None if freshness is None else Asked(freshness.within, freshness.by),
    )
