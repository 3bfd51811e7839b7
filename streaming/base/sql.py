"""Facts about SQL text that are known without Spark: the columns it names and the schema it declares."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokens import TokenType

from streaming.base.errors import BadExpression, UnknownColumn

PARSER_ERRORS = (SqlglotError, LookupError, RecursionError, ValueError, ArithmeticError, TypeError, AttributeError)
"""The errors that the parser raises for text that is no SQL: for most of it its own, for some those of Python."""

_NAME_OR_LETTER = re.compile(r"(`(?:[^`]|``)*`|'(?:[^'\\]|\\.)*'|\w+(?=:))|.", re.DOTALL)
"""In the text of a type a name or a comment, which is kept as it is, or one character of anything else."""


@dataclass(frozen=True)
class Column:
    """One declared column: its name, its Spark SQL type, whether it must be present, and its comment.

    The type is in lower case but for the names of fields in it.
    """

    name: str
    type: str
    required: bool
    comment: str = ""


def columns_of(ddl: str) -> tuple[Column, ...]:
    """The columns that `ddl` declares, such as `id string not null, ts timestamp`.

    Raises:
        BadExpression: `ddl` is not a list of `<name> <type>`, or repeats a name.
    """
    if not isinstance(ddl, str):
        raise BadExpression(
            f"the schema is {ddl!r}, a {type(ddl).__name__}", "write it as text, such as 'id string'.", value=ddl
        )
    try:
        table = sqlglot.parse_one(f"CREATE TABLE t ({ddl}\n)", dialect="spark")
    except PARSER_ERRORS as error:
        raise _unreadable("schema", ddl, error) from error
    _check_definitions(ddl, table)
    columns = tuple(
        Column(
            name=definition.name,
            type=_type_of(definition.kind),
            required=any(
                isinstance(constraint.kind, exp.NotNullColumnConstraint) and not constraint.kind.args.get("allow_null")
                for constraint in definition.constraints
            ),
            comment=" ".join(
                constraint.kind.this.name
                for constraint in definition.constraints
                if isinstance(constraint.kind, exp.CommentColumnConstraint)
            ),
        )
        for definition in table.find_all(exp.ColumnDef)
        if definition.kind is not None and definition.parent is table.this
    )
    # Spark does not tell `id` from `ID`.
    names = [column.name.lower() for column in columns]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if not columns or repeated:
        raise BadExpression(
            f"the schema {ddl!r} {'repeats ' + ', '.join(repeated) if repeated else 'declares no column'}",
            "write each column once as '<name> <type>', separated by commas.",
            value=ddl,
        )
    return columns


def _type_of(kind: exp.Expr) -> str:
    text: str = kind.sql("spark")
    return _NAME_OR_LETTER.sub(lambda match: match[1] or match[0].lower(), text)


def _check_definitions(ddl: str, table: exp.Expr) -> None:
    """Refuse what the parser took for something else than a column with a type, `not null` and a comment."""
    entries = table.this.expressions if isinstance(table.this, exp.Schema) else []
    for entry in entries:
        if not isinstance(entry, exp.ColumnDef) or entry.kind is None or not isinstance(entry.this, exp.Identifier):
            raise BadExpression(
                f"the schema {ddl!r} has {entry.sql('spark')!r}, which is no column with a type",
                f"write each column as '<name> <type>', such as '{entry.name or 'id'} string'.",
                value=ddl,
            )
        for constraint in entry.constraints:
            if not isinstance(constraint.kind, (exp.NotNullColumnConstraint, exp.CommentColumnConstraint)):
                raise BadExpression(
                    f"the schema {ddl!r} has {constraint.sql('spark')!r} at column {entry.name!r}, which nothing would "
                    "follow",
                    "leave it out, and write a rule for what must hold. Only NOT NULL and COMMENT may stand "
                    "behind a type.",
                    column=entry.name,
                )
    if table.args.get("properties") is not None:
        raise BadExpression(f"the schema {ddl!r} goes on behind its columns", "write no more than them.", value=ddl)


def names_in(expression: str) -> frozenset[str]:
    """The top-level columns that the SQL `expression` reads.

    Raises:
        BadExpression: `expression` is not one SQL expression.
    """
    if not isinstance(expression, str):
        raise BadExpression(
            f"{expression!r} is a {type(expression).__name__}",
            "write Spark SQL as text, such as 'amount > 0'.",
            value=expression,
        )
    try:
        trees = sqlglot.parse(expression, dialect="spark")
    except PARSER_ERRORS as error:
        raise _unreadable("expression", expression, error) from error
    if len(trees) != 1 or trees[0] is None:
        raise BadExpression(
            f"{expression!r} is {'no' if trees == [None] else 'more than one'} expression",
            "write one, as Spark SQL.",
            value=expression,
        )
    return frozenset(column.parts[0].name for column in trees[0].find_all(exp.Column))


def replaced(expression: str, columns: Mapping[str, str]) -> str:
    """The SQL `expression` with other SQL in place of top-level columns, by their names."""
    text, before = "", None
    at = 0
    for token in sqlglot.tokenize(expression, dialect="spark"):
        is_column = token.token_type in (TokenType.VAR, TokenType.IDENTIFIER) and before != TokenType.DOT
        if is_column and token.text in columns:
            text, at = f"{text}{expression[at : token.start]}{columns[token.text]}", token.end + 1
        before = token.token_type
    return text + expression[at:]


def check_names(what: str, expression: str, valid: tuple[str, ...]) -> None:
    """Refuse an `expression` of `what` that reads a column not in `valid`.

    Raises:
        UnknownColumn: with those there are.
        BadExpression: it is not SQL.
    """
    unknown = sorted(names_in(expression) - set(valid))
    if unknown:
        raise UnknownColumn(
            f"{what} reads unknown column {', '.join(map(repr, unknown))} in {expression!r}. "
            f"Columns there are: {', '.join(valid)}.",
            "Correct the name, or declare the column.",
            column=unknown[0],
            value=expression,
            choices=tuple(valid),
        )


def _unreadable(kind: str, text: str, error: Exception) -> BadExpression:
    told = "it is nested too deeply" if isinstance(error, RecursionError) else "not SQL"
    detail = "; ".join(str(entry.get("description")) for entry in getattr(error, "errors", [])) or told
    return BadExpression(f"cannot read the {kind} {text!r}: {detail}.", "Write it as Spark SQL.", value=text)
