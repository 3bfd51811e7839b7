"""Expectations as values: a name for people and what Great Expectations is asked, without importing it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, get_args

from quality.errors import SuiteError
from streaming.base import interval
from streaming.declare import Usual, usual_of

QUERY = "UnexpectedRowsExpectation"
_BRACES = re.compile(r"\{batch\}|\{\{|\}\}|[{}]")
USUAL = "usual"
"""The kind of an expectation that Great Expectations does not know: hours against those of weeks before."""
Level = Literal["error", "warn"]
"""The weight of an expectation that is not met: `error` closes the gate, `warn` is told and lets pass."""


@dataclass(frozen=True)
class Expectation:
    """One named expectation: `kind` is a class of Great Expectations, `arguments` (JSON values) are what it takes; or
    it is `usual`, which is computed here.

    `meaning` is one line for people. A `level` of `warn` does not close the gate where the data do not meet it; what
    could not be computed does, at either level. It is no part of the question, so verdicts stand when it is changed.

    Raises:
        SuiteError: there is no such level.
    """

    name: str
    meaning: str
    kind: str
    arguments: Mapping[str, Any]
    level: Level = "error"

    def __post_init__(self) -> None:
        if self.level not in get_args(Level):
            raise SuiteError(
                f"level {self.level!r} of expectation {self.name!r} is none; choose from {', '.join(get_args(Level))}."
            )
        object.__setattr__(self, "arguments", MappingProxyType(dict(self.arguments)))

    @property
    def definition(self) -> str:
        """The question in full, as JSON: a verdict on another definition is no verdict on this one."""
        return json.dumps({"kind": self.kind, **self.arguments}, sort_keys=True)


@dataclass(frozen=True)
class Suite:
    """The expectations of one table; `only`, an SQL condition, limits them to some rows.

    Raises:
        SuiteError: there is no expectation, or two have the same name.
    """

    expectations: tuple[Expectation, ...]
    only: str = "true"

    def __post_init__(self) -> None:
        names = [expectation.name for expectation in self.expectations]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise SuiteError(
                f"expectation {', '.join(map(repr, repeated))} is declared twice in a suite", "rename one."
            )
        if not names:
            raise SuiteError("a suite without expectations would let everything pass", "add one, such as unique(...).")

    def extended(self, more: Sequence[Expectation]) -> Suite:
        """This suite with `more` expectations after its own."""
        return Suite((*self.expectations, *more), self.only)


def always(name: str, condition: str, meaning: str, *, level: Level = "error") -> Expectation:
    """Every row satisfies the SQL `condition`; where that is null, the row breaks it.

    Braces are as in `nothing_from`.
    """
    query = f"SELECT * FROM {{batch}} WHERE NOT coalesce(({condition}), false)"
    return nothing_from(name, query, meaning, level=level)


def nothing_from(name: str, query: str, meaning: str, *, level: Level = "error") -> Expectation:
    """The SQL `query`, which calls the table `{batch}`, has no rows; those it has are the defects.

    Another brace stands for itself, as in `rlike '[A-Z]{3}'`. Two of the same without a space stand for one.
    """
    # Great Expectations takes what is in braces for names that it puts in.
    asked = _BRACES.sub(lambda found: found[0] if len(found[0]) > 1 else 2 * found[0], query)
    return Expectation(name, meaning, QUERY, {"unexpected_rows_query": asked}, level)


def unique(name: str, columns: Sequence[str], *, level: Level = "error") -> Expectation:
    """No two rows agree in all of `columns`; null equals null."""
    key = ", ".join(columns)
    # GX's own kinds would leave out nulls, and take one or two columns only.
    repeated = f"SELECT {key}, count(*) AS times FROM {{batch}} GROUP BY {key} HAVING count(*) > 1"
    return nothing_from(name, repeated, f"one row per {key}", level=level)


def fresh(
    name: str,
    by: Sequence[str],
    within: str,
    *,
    time: str = "window_end",
    clock: str | None = None,
    retired_after: str = "30 days",
    level: Level = "error",
) -> Expectation:
    """Each combination of values of the columns `by` has a row whose `time` is at most `within` before the clock.

    The clock is the SQL aggregate `clock`, the greatest `time` where it is left out, so that a version of the table is
    judged as it was, whenever that is. Of values whose newest row is older than `retired_after` nothing is asked. What
    is found are the values that are late, those furthest behind first.
    """
    columns = ", ".join(f"`{column}`" for column in by)
    newest = f"SELECT {columns}, max({time}) AS newest FROM {{batch}} WHERE {time} IS NOT NULL GROUP BY {columns}"
    until = f"SELECT {clock or f'max({time})'} AS until FROM {{batch}}"
    late, retired = (
        f"timestampadd(SECOND, {-interval(each).total_seconds():.0f}, until)" for each in (within, retired_after)
    )
    query = (
        f"SELECT {columns}, newest FROM ({newest}) CROSS JOIN ({until}) "
        f"WHERE newest < {late} AND newest >= {retired} ORDER BY newest"
    )
    return nothing_from(name, query, f"every {', '.join(by)} has a row of the last {within}", level=level)


def usual(
    name: str,
    rule: Usual | str = "count(*)",
    *,
    time: str = "window_start",
    clock: str | None = None,
    level: Level = "warn",
) -> Expectation:
    """No hour of `time` is unusual by the rule, over those that it judges; `"avg(amount)"` is short for such a `Usual`.

    Hours are judged that are over by the SQL aggregate `clock`, which is the greatest `time` where it is left out, so
    that a version of the table is judged as it was, whenever that is. While there is too little history, it passes and
    says so.

    Raises:
        DeclarationError: as `Usual`.
    """
    rule = usual_of(rule)
    arguments = {
        "value": rule.value,
        "time": time,
        "clock": clock or f"max({time})",
        "weeks": rule.weeks,
        "minimum": rule.minimum,
        "factor": rule.factor,
        "last": rule.last,
        "least": rule.least,
        "holidays": [day.isoformat() for day in rule.holidays],
    }
    meaning = f"{rule.value} of each hour of the last {rule.last} is as in the {rule.weeks} weeks before"
    return Expectation(name, meaning, USUAL, arguments, level)


def of_type(column: str, spark_type: str) -> Expectation:
    """`column` has the Spark type class `spark_type`, such as `LongType`."""
    arguments = {"column": column, "type_": spark_type}
    return Expectation(
        f"type_of_{column.lstrip('_')}", f"{column} is a {spark_type}", "ExpectColumnValuesToBeOfType", arguments
    )


def of_types(name: str, types: Mapping[str, str]) -> Expectation:
    """Each column has exactly its Spark SQL type, such as `{"amount": "decimal(10,2)"}`: one expectation for them all.

    What it finds are the columns whose type is another one, also in a table without rows.
    """
    # `max` and `min` know no order of maps; `first` takes any type, and gives a row where there is none.
    actual_types = ", ".join(f"typeof(first(`{column}`)) AS `{column}`" for column in types)
    compared = ", ".join(
        f"struct('{column}' AS column, typeof(cast(null AS {type_})) AS expected, `{column}` AS found)"
        for column, type_ in types.items()
    )
    query = (
        "SELECT pair.column, pair.expected, pair.found "
        f"FROM (SELECT explode(array({compared})) AS pair FROM (SELECT {actual_types} FROM {{batch}})) "
        "WHERE pair.expected <> pair.found"
    )
    return nothing_from(name, query, f"every column has its type: {', '.join(types)}")


def mostly_absent(name: str, column: str, share: float, meaning: str, *, level: Level = "error") -> Expectation:
    """`column` is null in at least the `share` (0 to 1) of the rows."""
    return Expectation(name, meaning, "ExpectColumnValuesToBeNull", {"column": column, "mostly": share}, level)
