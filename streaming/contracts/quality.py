"""Quality of the standard as conditions of rows, and as checks of a whole table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from streaming.contracts.terms import OPERATORS, Bound, Check, Condition, Severity, as_name, unique_check
from streaming.contracts.types import Refuse, range_of, width_of

if TYPE_CHECKING:
    from open_data_contract_standard.model import DataQuality, SchemaProperty

_WARNINGS = ("info", "information", "warning", "warn", "low", "minor")
_BROKEN_ROWS = re.compile(r"\s*select\s+count\s*\(\s*\*\s*\)\s+from\s+(\S+)\s+where\s+(.*?)\s*;?\s*", re.I | re.S)
_NOT_TRUE = re.compile(r"not\s+coalesce\s*\(\s*\((.*)\)\s*,\s*false\s*\)", re.I | re.S)
_PLACEHOLDER = re.compile(r"\$?\{(table|object|column|property)\}")
_UUID = "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"
_BYTE = "(25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])"
_FORMATS = {
    "uuid": _UUID,
    "email": "^[^@ ]+@[^@ ]+[.][^@ ]+$",
    "uri": "^[A-Za-z][A-Za-z0-9+.-]*:.+$",
    "hostname": "^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$",
    "ipv4": f"^({_BYTE}[.]){{3}}{_BYTE}$",
}
_COMPARED = {"minimum": ">=", "maximum": "<=", "exclusiveMinimum": ">", "exclusiveMaximum": "<"}
_METRICS = ("nullValues", "missingValues", "invalidValues", "duplicateValues", "rowCount")


def literal(value: Any) -> str:
    """A value of a contract as SQL."""
    if value is None:
        return "null"
    if isinstance(value, bool | int | float):
        return str(value).lower()
    return exp.Literal.string(str(value)).sql("spark")


def option_conditions(of: SchemaProperty, type_: str, name: str, value: str, refuse: Refuse) -> Iterator[Condition]:
    """The conditions that follow from the options of a property's type, and from its allowed values.

    `value` is SQL for it; `name` its place, such as `orders.amount`.
    """
    column = name.partition(".")[2]

    def condition(what: str, text: str) -> Condition:
        return Condition(as_name(f"{column}_{what}"), f"{value} is null or {text}")

    options, width = dict(of.logicalTypeOptions or {}), width_of(of)
    if width is not None:
        options["maxLength"] = min(width, options.get("maxLength", width))
    for option, asked in options.items():
        if option in _COMPARED:
            # An instant is given as text.
            kind = type_ if type_ in ("date", "timestamp") else ""
            yield condition(option, f"{value} {_COMPARED[option]} {kind}{literal(asked)}")
        elif option == "multipleOf":
            yield condition(option, f"{value} % {asked} = 0")
        elif option in ("minLength", "maxLength"):
            yield condition(option, f"length({value}) {'>=' if option == 'minLength' else '<='} {asked}")
        elif option == "pattern":
            yield condition(option, f"{value} rlike {literal(asked)}")
        elif option in ("minItems", "maxItems"):
            yield condition(option, f"size({value}) {'>=' if option == 'minItems' else '<='} {asked}")
        elif option == "uniqueItems":
            if asked:
                yield condition(option, f"size(array_distinct({value})) = size({value})")
        elif option == "format" and of.logicalType == "string" and asked in _FORMATS:
            yield condition(f"is_{asked}", f"{value} rlike {literal(_FORMATS[asked])}")
        elif option == "format" and (limits := range_of(of, type_)) is not None:
            yield condition(f"is_{asked}", f"{value} between {limits[0]} and {limits[1]}")
        elif not says_nothing(option, asked, of.logicalType):
            refuse(f"{name}.logicalTypeOptions.{option}", f"nothing here checks {option}={asked!r}")
    if of.enum:
        allowed = ", ".join(literal(each.value) for each in of.enum)
        yield condition("enum", f"{value} in ({allowed})")


def says_nothing(option: str, asked: Any, logical: str | None) -> bool:
    """True of an option that the type has followed, or that says what is so here in any case."""
    follows = option == "format" and logical in ("integer", "number")
    is_utc = option == "timezone" or (option == "defaultTimezone" and asked in ("UTC", "Etc/UTC"))
    return follows or is_utc or (option == "format" and asked in ("password",))


def quality_terms(
    checks: Iterable[DataQuality], table: str, column: str | None, place: str, refuse: Refuse, tell: Refuse
) -> Iterator[Condition | Check]:
    """The conditions and checks of a list of quality, of a `column` or of the table as a whole."""
    for number, of in enumerate(checks):
        where = f"{place}.quality[{number}]" + (f" ({of.name})" if of.name else "")
        severity: Severity = "warning" if (of.severity or "").lower() in _WARNINGS else "error"
        metric = of.metric or of.rule
        name = as_name(of.name or "_".join(filter(None, (column, metric, str(number) if metric is None else ""))))
        operator, bound = _bound(of)
        if of.type == "text":
            tell(where, "a text that people read")
        elif of.type == "custom":
            refuse(where, f"it is a check of {of.engine!r}, which does not run here; write it as sql")
        elif operator is None:
            refuse(where, f"it compares with nothing; use one of {', '.join(OPERATORS)}")
        elif of.type == "sql" or (metric is None and of.query):
            term = _of_sql(of, table, column, name, severity, operator, bound)
            others = _others_read(term.query, table) if isinstance(term, Check) else ()
            if others:
                refuse(
                    where, f"it reads {others[0]!r}, and a check reads its own table alone: {table!r}, or {{object}}"
                )
            else:
                yield term
        elif metric not in _METRICS:
            refuse(where, f"metric {metric!r} is none of {', '.join(_METRICS)}")
        else:
            yield from _of_library(of, metric, table, column, name, severity, operator, bound, where, refuse)


def _bound(of: DataQuality) -> tuple[str | None, Bound]:
    for operator in OPERATORS:
        bound = getattr(of, operator)
        if bound is not None:
            return operator, tuple(bound) if isinstance(bound, list) else bound
    return None, 0


def _is_none(operator: str, bound: Bound) -> bool:
    """True where no row at all may break it."""
    return (operator, bound) in (("mustBe", 0), ("mustBeLessThan", 1), ("mustBeLessOrEqualTo", 0))


def _of_sql(
    of: DataQuality, table: str, column: str | None, name: str, severity: Severity, operator: str, bound: Bound
) -> Condition | Check:
    names = {"table": table, "object": table, "column": f"`{column}`", "property": f"`{column}`"}
    query = _PLACEHOLDER.sub(lambda match: names[match[1]], of.query or "").strip().rstrip(";")
    rows = _BROKEN_ROWS.fullmatch(query)
    if rows is not None and rows[1].strip("`") == table and _is_none(operator, bound) and _is_of_one_row(rows[2]):
        holds = _NOT_TRUE.fullmatch(rows[2])
        return Condition(name, holds[1] if holds else f"not coalesce(({rows[2]}), false)", severity)
    return Check(name, table, query, operator, bound, severity, (of.description or "").strip())


def _others_read(query: str, table: str) -> tuple[str, ...]:
    """The tables that a query reads besides its own, in the order of their names."""
    try:
        tree = sqlglot.parse_one(query, dialect="spark")
    except SqlglotError:
        return ()
    known = {table.lower(), *(each.alias.lower() for each in tree.find_all(exp.CTE))}
    read = {each.sql("spark") for each in tree.find_all(exp.Table) if each.db or each.name.lower() not in known}
    return tuple(sorted(read))


def _is_of_one_row(condition: str) -> bool:
    try:
        tree = sqlglot.parse_one(condition, dialect="spark")
    except SqlglotError:
        return False
    return tree.find(exp.AggFunc, exp.Query, exp.Window) is None


def _of_library(
    of: DataQuality,
    metric: str,
    table: str,
    column: str | None,
    name: str,
    severity: Severity,
    operator: str,
    bound: Bound,
    where: str,
    refuse: Refuse,
) -> Iterator[Condition | Check]:
    arguments, meaning = of.arguments or {}, (of.description or "").strip()
    unit = of.unit or "rows"
    if metric == "rowCount":
        yield Check(name, table, f"SELECT count(*) FROM {table}", operator, bound, severity, meaning)
        return
    if unit not in ("rows", "percent"):
        refuse(where, f"unit {unit!r} is neither rows nor percent")
        return
    if metric == "duplicateValues":
        columns = tuple(arguments.get("properties") or ([column] if column else ()))
        if not columns:
            refuse(where, "duplicateValues of a table needs arguments.properties")
            return
        query = unique_check(table, columns).query
        if unit == "percent":
            query = query.replace("SELECT ", "SELECT 100 * (", 1).replace(" FROM ", ") / count(*) FROM ", 1)
        yield Check(name, table, query, operator, bound, severity, meaning)
        return
    if column is None:
        refuse(where, f"metric {metric} is of a property, and stands at the table")
        return
    value = f"`{column}`"
    if metric == "nullValues":
        good = f"{value} is not null"
    elif metric == "missingValues":
        listed = arguments.get("missingValues") or [None]
        texts = [literal(each) for each in listed if each is not None]
        parts = [f"{value} is not null"] if None in listed else []
        parts += [f"({value} is null or {value} not in ({', '.join(texts)}))"] if texts else []
        good = " and ".join(parts)
    else:
        parts = []
        if arguments.get("validValues"):
            parts.append(f"{value} in ({', '.join(map(literal, arguments['validValues']))})")
        if arguments.get("pattern"):
            parts.append(f"{value} rlike {literal(arguments['pattern'])}")
        if not parts:
            refuse(where, "invalidValues needs arguments.validValues or arguments.pattern")
            return
        good = f"{value} is null or ({' and '.join(parts)})"
    if unit == "rows" and _is_none(operator, bound):
        yield Condition(name, good, severity)
        return
    broken = f"count_if(NOT coalesce(({good}), false))"
    query = f"SELECT {f'100 * {broken} / count(*)' if unit == 'percent' else broken} FROM {table}"
    yield Check(name, table, query, operator, bound, severity, meaning)
