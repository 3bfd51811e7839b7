"""Values of a contract: what it asks of a stream or table, whichever file or declaration says so."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Literal

import sqlglot
from sqlglot import exp

from streaming.base import sql

Severity = Literal["error", "warning"]
"""The weight of what is asked: a row that breaks an `error` is rejected, and a `warning` is told."""

_COMPARED = {
    "mustBe": "=",
    "mustNotBe": "<>",
    "mustBeGreaterThan": ">",
    "mustBeGreaterOrEqualTo": ">=",
    "mustBeLessThan": "<",
    "mustBeLessOrEqualTo": "<=",
}
_BETWEEN = {"mustBeBetween": "between", "mustNotBeBetween": "not between"}
OPERATORS = (*_COMPARED, *_BETWEEN)
"""The comparisons of the standard."""

Bound = str | bool | int | float | tuple[float, float]


@dataclass(frozen=True)
class Condition:
    """A condition that each row must satisfy: a rule of the stream."""

    name: str
    condition: str
    severity: Severity = "error"


@dataclass(frozen=True)
class Check:
    """A number of the whole table that must be as an `operator` of the standard and its `bound` say.

    `query` is SQL with one value, over a table called `table`, which has the valid rows.
    """

    name: str
    table: str
    query: str
    operator: str
    bound: Bound
    severity: Severity = "error"
    meaning: str = ""

    @property
    def expected(self) -> str:
        """The comparison as SQL, behind a value: `>= 100`, `between 1 and 5`."""
        if isinstance(self.bound, tuple):
            low, high = self.bound
            return f"{_BETWEEN[self.operator]} {low} and {high}"
        if isinstance(self.bound, str):
            text = self.bound.replace("\\", "\\\\").replace("'", "\\'")
            return f"{_COMPARED[self.operator]} '{text}'"
        return f"{_COMPARED[self.operator]} {str(self.bound).lower()}"

    @property
    def defects(self) -> str:
        """SQL over a table called `{batch}`, other braces doubled, with a row where the number is another one."""
        query = self.query.replace("{", "{{").replace("}", "}}")
        expected = self.expected.replace("{", "{{").replace("}", "}}")
        return (
            f"WITH `{self.table}` AS (SELECT * FROM {{batch}} WHERE _day IS NOT NULL) "
            f"SELECT value AS found FROM ({query}) AS asked(value) WHERE NOT coalesce(value {expected}, false)"
        )


@dataclass(frozen=True)
class Contract:
    """The contract that a stream is declared by: its id, version and status, whose it is, and its checks of the table.

    `key` is its primary key, as the file has it. `owners` are addresses, and names of teams (`team:sales`). `rules` are
    the names of the stream's rules that are its, and `untaken` the parts of the file that change nothing here, by their
    places in it.
    """

    id: str
    version: str
    status: str
    key: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()
    rules: tuple[str, ...] = field(default=(), compare=False)
    untaken: tuple[str, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        return f"{self.id} {self.version} ({self.status})"


@dataclass(frozen=True)
class Asked:
    """The freshness that is asked for, also of each value of the columns `by`."""

    within: str
    by: tuple[str, ...] = ()
    retired_after: str | None = None
    named: int | None = None


@dataclass(frozen=True)
class Terms:
    """Everything that is asked of one table.

    `unique` are columns of which no two rows share a value, `fields` the names in payloads of columns that are called
    otherwise there, and `event_time` is the column by which latency is told.
    """

    name: str
    contract: Contract
    columns: tuple[sql.Column, ...]
    description: str = ""
    conditions: tuple[Condition, ...] = ()
    unique: tuple[str, ...] = ()
    fields: tuple[tuple[str, str], ...] = ()
    event_time: str | None = None
    freshness: Asked | None = None
    retention: str | None = None

    def column(self, name: str) -> sql.Column | None:
        """The column of that name; None where there is none."""
        return next((column for column in self.columns if column.name == name), None)


def renamed_terms(terms: Terms, name: str) -> Terms:
    """The terms of the same table under another name, which checks then read."""
    if name == terms.name:
        return terms
    checks = tuple(
        replace(each, table=name, query=_over(each.query, each.table, name)) for each in terms.contract.checks
    )
    return replace(terms, name=name, contract=replace(terms.contract, checks=checks))


def _over(query: str, table: str, name: str) -> str:
    tree = sqlglot.parse_one(query, dialect="spark")
    for read in tree.find_all(exp.Table):
        if read.name.lower() == table.lower():
            read.set("this", exp.to_identifier(name))
    return tree.sql("spark")


def as_name(text: str) -> str:
    """A text as the name of a rule: lower-case letters, digits and underscores."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", text)
    name = re.sub(r"[^a-z0-9]+", "_", words.lower()).strip("_")
    return name if name[:1].isalpha() else f"check_{name}".rstrip("_")


def unique_check(table: str, columns: tuple[str, ...]) -> Check:
    """The check that no two valid rows agree in all of `columns`; a row in which one of them is null does not count."""
    names = ", ".join(f"`{column}`" for column in columns)
    there = " and ".join(f"`{column}` is not null" for column in columns)
    query = f"SELECT count_if({there}) - count(DISTINCT {names}) FROM {table}"
    return Check(as_name(f"unique_{'_'.join(columns)}"), table, query, "mustBe", 0, "error", f"one row per {names}")
